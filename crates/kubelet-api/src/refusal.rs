//! Why a request is refused, in the words of a stock kubelet: kubectl shows them to people, and tools match on them.

use http::StatusCode;

/// Why the node does not do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such Pod here, or one of that name with another uid.
    #[error("pod does not exist")]
    NoPod {
        /// Its name.
        pod: String,
    },
    /// The Pod has no such container.
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The container has not been started yet.
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    Waiting {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
        /// What it waits for, such as `ContainerCreating`.
        reason: String,
    },
    /// The logs of an instance before the current one were wanted, and there was none.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The container has neither run nor a reason to wait.
    #[error("container {container:?} in pod {pod:?} is not available")]
    NotAvailable {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The container has ended, so nothing can be run in it.
    #[error("container {container:?} in pod {pod:?} is not running")]
    NotRunning {
        /// The Pod's name.
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The request does not make sense.
    #[error("{0}")]
    Invalid(String),
    /// An option of the request has a value outside its range.
    #[error("Invalid request: {0}")]
    Unprocessable(String),
    /// This node cannot do that at all.
    #[error("{0}")]
    Unsupported(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    /// The HTTP status. kubectl hides the text of 404 and 503 answers to `logs`, so what a person can act on is a 400.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoPod { .. } | Self::NoContainer { .. } => StatusCode::NOT_FOUND,
            Self::Waiting { .. }
            | Self::NoPrevious { .. }
            | Self::NotAvailable { .. }
            | Self::NotRunning { .. }
            | Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The text for `logs`, which names the Pod where the streaming endpoints do not.
    pub(crate) fn log_text(&self) -> String {
        match self {
            Self::NoPod { pod } => format!("pod {pod:?} does not exist"),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_a_stock_kubelet() {
        let pod = || "p1".to_owned();
        let gone = Refusal::NoPod { pod: pod() };
        assert_eq!(gone.to_string(), "pod does not exist");
        assert_eq!(gone.log_text(), "pod \"p1\" does not exist");
        let unknown = Refusal::NoContainer {
            pod: pod(),
            container: "zz".to_owned(),
        };
        assert_eq!(unknown.to_string(), "container \"zz\" not found in pod \"p1\"");
        assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
        let waiting = Refusal::Waiting {
            pod: pod(),
            container: "c".to_owned(),
            reason: "image can't be pulled".to_owned(),
        };
        assert_eq!(
            waiting.to_string(),
            "container \"c\" in pod \"p1\" is waiting to start: image can't be pulled"
        );
        assert_eq!(waiting.status(), StatusCode::BAD_REQUEST);
    }
}
