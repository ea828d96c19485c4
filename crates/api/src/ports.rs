//! Ports that more than one component must agree on.

/// Cache clients, HTTP.
pub const KURA_HTTP: u16 = 4000;
/// Cache clients, gRPC.
pub const KURA_GRPC: u16 = 50051;
/// Cache peers, mutual TLS.
pub const KURA_PEER: u16 = 7443;

/// Metrics of every controller and of tart-kubelet.
pub const METRICS: u16 = 8080;
/// Health probes of every controller.
pub const HEALTH: u16 = 8081;
/// Metrics of the Pod in a virtual machine, forwarded by its host.
pub const POD_METRICS: u16 = 9091;
/// Host metrics of a Mac.
pub const NODE_EXPORTER: u16 = 9100;
/// Screen of a runner, relayed by its host.
pub const VNC: u16 = 5900;
/// Remote shell of a host.
pub const SSH: u16 = 22;
/// The API every kubelet serves.
pub const KUBELET: u16 = 10250;

/// Names of the Service ports in front of [`KURA_HTTP`], [`KURA_GRPC`] and [`KURA_PEER`].
pub mod names {
    /// Cache clients, HTTP.
    pub const HTTP: &str = "http";
    /// Cache clients, gRPC.
    pub const GRPC: &str = "grpc";
    /// Cache peers.
    pub const PEER: &str = "peer";
    /// Host metrics of a Mac.
    pub const NODE_EXPORTER: &str = "node-exporter";
    /// Metrics of tart-kubelet.
    pub const TART_KUBELET: &str = "tart-kubelet";
    /// Metrics of the Pod in a virtual machine.
    pub const POD_METRICS: &str = "pod-metrics";
    /// Screen of a runner.
    pub const VNC_RELAY: &str = "vnc-relay";
    /// Remote shell of a host.
    pub const SSH: &str = "ssh";
}
