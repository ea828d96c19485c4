//! What can be wrong with a Join. Every message says what to use instead; none quotes a secret.

/// A Join that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error(
        "{name:?} cannot be the name of a node; use a DNS name of at most 63 lower-case letters, digits, '-' and '.'"
    )]
    NodeName { name: String },
    #[error("{id:?} is no provider id; use scheme://path of letters, digits, '.', '_', '-' and '/'")]
    ProviderId { id: String },
    #[error(
        "{key:?} is no label key; use an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' and '.'"
    )]
    LabelKey { key: String },
    #[error(
        "{value:?} is no value for {key}; use at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    )]
    LabelValue { key: String, value: String },
    #[error(
        "a kubelet may not give itself the label {key}; use another prefix, or let the controller label the Node after it joined"
    )]
    ReservedLabel { key: String },
    #[error("{effect:?} is no effect of the taint {key}; use NoSchedule, PreferNoSchedule or NoExecute")]
    TaintEffect { key: String, effect: String },
    #[error("the taint {key} with effect {effect} is there twice; a Node can have it once")]
    TaintTwice { key: String, effect: String },
    #[error("the bootstrap kubeconfig {problem}; use one that names a cluster, a user and a context")]
    Kubeconfig { problem: &'static str },
    #[error("the cluster's certificate authority {problem}; use one or more CERTIFICATE blocks in PEM")]
    ClusterCa { problem: &'static str },
    #[error(
        "no address for the cluster's DNS is known; Pods could resolve no name, so wait until the Service kube-dns has one"
    )]
    NoClusterDns,
    #[error("{address} cannot serve DNS to Pods; use the address of the Service kube-dns")]
    ClusterDns { address: std::net::IpAddr },
    #[error("{domain:?} is no domain; use DNS labels of lower-case letters, digits and '-', such as cluster.local")]
    ClusterDomain { domain: String },
    #[error("{text:?} is no Kubernetes release; use v1.<minor>, such as v1.35")]
    Channel { text: String },
    #[error("{mac:?} is no hardware address; use six pairs of hexadecimal digits, such as 02:00:00:12:34:56")]
    Mac { mac: String },
    #[error("{id} is no VLAN; use a number from 1 to 4094")]
    Vlan { id: u16 },
    #[error(
        "{address:?} is no address on a Private Network; use an IPv4 host address and a prefix, such as 172.16.0.5/22"
    )]
    PrivateAddress { address: String },
    #[error("images may take at most 65536 GiB of /data, not {gib}; use 0 for no limit")]
    ImagesQuota { gib: u32 },
}
