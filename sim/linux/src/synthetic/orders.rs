//! What the join program in user data would do, read rather than run.

use std::collections::BTreeMap;

use kube::config::Kubeconfig;
use russet_telemetry::Secret;

use crate::inside::{parse_unit, parse_user_data};

/// Who to become.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) node_name: String,
    pub(crate) provider_id: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Key, value, effect.
    pub(crate) taints: Vec<(String, String, String)>,
    pub(crate) kubeconfig: Secret<String>,
}

/// Why user data does not say so. Never quotes it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum NoOrders {
    #[error("there is no user data; a server without root cannot be told over SSH")]
    Nothing,
    #[error("the user data cannot be read")]
    UserData,
    #[error("the user data holds no join program with {0}")]
    Missing(&'static str),
    #[error("the kubeconfig of the join program cannot be read")]
    Kubeconfig,
}

impl Orders {
    pub(crate) fn read(user_data: Option<&str>) -> Result<Self, NoOrders> {
        let text = user_data.ok_or(NoOrders::Nothing)?;
        let config = parse_user_data(text).map_err(|_| NoOrders::UserData)?;
        let files = config.write_files.iter().filter_map(|file| file.bytes().ok());
        let programs: Vec<String> = files.filter_map(|bytes| String::from_utf8(bytes).ok()).collect();
        let value = |name: &'static str| {
            let found = programs.iter().find_map(|program| variable(program, name));
            found.ok_or(NoOrders::Missing(name))
        };
        let unit = parse_unit("kubelet.service", &value("KUBELET_UNIT")?).ok_or(NoOrders::Missing("a kubelet"))?;
        let flag = |name: &str| {
            let prefix = format!("--{name}=");
            unit.iter()
                .find_map(|word| word.strip_prefix(&prefix))
                .unwrap_or_default()
                .to_owned()
        };
        let kubeconfig = value("BOOTSTRAP_KUBECONFIG")?;
        Kubeconfig::from_yaml(&kubeconfig).map_err(|_| NoOrders::Kubeconfig)?;
        let node_name = flag("hostname-override");
        if node_name.is_empty() {
            return Err(NoOrders::Missing("the name of a node"));
        }
        let pairs = flag("node-labels");
        let labels = pairs.split(',').filter_map(|pair| pair.split_once('='));
        let given = flag("register-with-taints");
        let taints = given.split(',').filter_map(|taint| {
            let (key, effect) = taint.rsplit_once(':')?;
            let (key, value) = key.split_once('=').unwrap_or((key, ""));
            Some((key.to_owned(), value.to_owned(), effect.to_owned()))
        });
        Ok(Self {
            node_name,
            provider_id: flag("provider-id"),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            taints: taints.collect(),
            kubeconfig: Secret::new(kubeconfig),
        })
    }
}

/// The value of `NAME='…'` at the start of a line of a shell program, in which a quotation mark is `'\''`.
fn variable(program: &str, name: &str) -> Option<String> {
    let start = format!("\n{name}='");
    let (_, mut rest) = program.split_once(&start)?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        value.push_str(part);
        match after.strip_prefix("\\''") {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_data(program: &str) -> String {
        let body = serde_json::json!({"write_files": [{"path": "/opt/x.sh", "content": program}], "runcmd": [["bash", "/opt/x.sh"]]});
        format!("#cloud-config\n{body}")
    }

    #[test]
    fn a_join_program_says_who_to_become() {
        let program = "#!/bin/bash\nBOOTSTRAP_KUBECONFIG='{\"apiVersion\": \"v1\", \"it'\\''s\": 1}'\nKUBELET_UNIT='[Service]\n\
            ExecStart=/usr/bin/kubelet \\\n  --hostname-override=n1 \\\n  --provider-id=scaleway://x \\\n  --node-labels=a=b,c=d \\\n  \
            --register-with-taints=k=v:NoSchedule,l=:NoExecute $X\n'\n";
        let orders = Orders::read(Some(&user_data(program))).unwrap();
        assert_eq!(
            (orders.node_name.as_str(), orders.provider_id.as_str()),
            ("n1", "scaleway://x")
        );
        assert_eq!(orders.labels.len(), 2);
        assert_eq!(
            orders.taints[1],
            ("l".to_owned(), String::new(), "NoExecute".to_owned())
        );
        assert!(orders.kubeconfig.expose().contains("it's"));
    }

    #[test]
    fn user_data_without_a_join_program_is_told_apart() {
        assert_eq!(Orders::read(None).unwrap_err(), NoOrders::Nothing);
        assert_eq!(Orders::read(Some("x")).unwrap_err(), NoOrders::UserData);
        let other = Orders::read(Some(&user_data("echo s3cret")));
        assert_eq!(other.unwrap_err(), NoOrders::Missing("KUBELET_UNIT"));
    }
}
