//! Why a machine is not in the cluster.

/// Why a machine is not in the cluster. No variant holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kubeconfig leads nowhere.
    #[error("could not use the bootstrap kubeconfig: {0}")]
    Kubeconfig(String),
    /// Nobody says where the API server is by now.
    #[error(
        "could not use the cluster-info: {0}; it is written when the host is set up, as kube-public/cluster-info has it"
    )]
    ClusterInfo(String),
    /// No key, no certificate request.
    #[error("could not make a key")]
    Key(#[from] rcgen::Error),
    /// Somebody decided against this machine.
    #[error("the certificate request {name} was denied: {reason}")]
    Denied {
        /// The request.
        name: String,
        /// Why.
        reason: String,
    },
    /// It was approved, and then nobody could sign it.
    #[error("the certificate request {name} could not be signed: {reason}")]
    Unsigned {
        /// The request.
        name: String,
        /// Why.
        reason: String,
    },
    /// Two machines would be one Node.
    #[error("the Node {name} belongs to another machine: its providerID is {found}, this machine is {ours}")]
    ForeignNode {
        /// The Node.
        name: String,
        /// Whose it is.
        found: String,
        /// Who we are.
        ours: String,
    },
    /// The settings make no object Kubernetes knows.
    #[error("the settings make no Node: {0}")]
    Unfit(serde_json::Error),
    /// A machine that forgets its key would ask for another certificate at each start.
    #[error("could not keep the identity of the node: {0}; check that its folder exists and is writable")]
    Store(std::io::Error),
    /// The API server, or the way to it.
    #[error("could not {what}: {}", brief(cause))]
    Api {
        /// What was attempted.
        what: &'static str,
        /// What happened. It is in the sentence, and so not told once more as the source.
        cause: Box<kube::Error>,
    },
}

impl Error {
    pub(crate) fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |cause| Self::Api {
            what,
            cause: Box::new(cause),
        }
    }

    /// Whether another try with the same settings cannot help.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Api { .. })
    }

    /// The API server answered with this code.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Api { cause, .. } => match cause.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the API server answered, and did not want us.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// Whether the API server answered, and knew who we are.
    pub(crate) fn is_known(&self) -> bool {
        self.code().is_some_and(|code| code != 401)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }
}

/// The sentence of the API server rather than the debug form of its answer; of a way that does not lead there, all that is known.
fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server answered {}", status.code),
        other => {
            let mut told = other.to_string();
            let mut next = std::error::Error::source(other);
            while let Some(error) = next {
                let more = error.to_string();
                if !told.contains(&more) {
                    told = format!("{told}: {more}");
                }
                next = error.source();
            }
            told
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use std::error::Error as _;

    /// The last words of an agent with a wrong token said `Unauthorized` five times, once as the debug form of the answer.
    #[test]
    fn what_the_api_server_answered_is_told_once() {
        let answer = Status::failure("Unauthorized", "Unauthorized").with_code(401);
        let error = Error::api("read the certificate request")(kube::Error::Api(Box::new(answer)));
        assert_eq!(
            error.to_string(),
            "could not read the certificate request: Unauthorized"
        );
        assert!(error.source().is_none());
    }

    #[test]
    fn a_way_that_does_not_lead_there_is_told_to_its_end() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = Error::api("renew the Lease")(kube::Error::Service(Box::new(refused)));
        let told = error.to_string();
        assert!(told.contains("connection refused"), "{told}");
        assert_eq!(told.matches("connection refused").count(), 1, "{told}");
    }
}
