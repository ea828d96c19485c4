//! How a command ended, as the caller is told.

use bytes::Bytes;
use serde_json::json;

use super::version::Version;
use crate::backend::{Backend, ContainerRef, Exec, Exit, Io};
use crate::refusal::Refusal;

/// How a session ended.
pub(crate) type Outcome = Result<Exit, Refusal>;

/// The bytes for the error stream. Versions before 4 send nothing on success and plain text otherwise. `failing` says what was tried.
pub(super) fn report(outcome: &Outcome, version: Version, failing: &str) -> Bytes {
    let text = match outcome {
        Ok(Exit(0)) if !version.status_object() => return Bytes::new(),
        Ok(Exit(0)) => json!({"metadata": {}, "status": "Success"}).to_string(),
        Ok(Exit(code)) => {
            let message = format!("command terminated with non-zero exit code: exit status {code}");
            if !version.status_object() {
                return message.into();
            }
            json!({
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            })
            .to_string()
        }
        Err(refusal) => {
            let message = format!("{failing}: {refusal}");
            if !version.status_object() {
                return message.into();
            }
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {message}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": message}]},
                "code": 500,
            })
            .to_string()
        }
    };
    text.into()
}

/// `/run`: a command without input, its output as one text.
pub(crate) async fn run<B: Backend>(
    backend: &B,
    container: &ContainerRef,
    command: Vec<String>,
    limit: usize,
) -> Result<Vec<u8>, Refusal> {
    use tokio::sync::mpsc;

    use crate::stream::{Out, Writer};

    let (queue, mut outs) = mpsc::channel(16);
    let io = Io {
        stdin: None,
        stdout: Some(Writer::new(1, queue.clone(), std::sync::Arc::default())),
        stderr: Some(Writer::new(2, queue, std::sync::Arc::default())),
        resize: None,
    };
    let collect = async {
        let mut output = Vec::new();
        while let Some(out) = outs.recv().await {
            if let Out::Data { bytes, .. } = out {
                if output.len() + bytes.len() > limit {
                    return Err(Refusal::Failed(format!(
                        "the output is larger than {limit} bytes; use exec, which streams it"
                    )));
                }
                output.extend_from_slice(&bytes);
            }
        }
        Ok(output)
    };
    let exec = async { backend.exec(container, Exec { command, tty: false }, io).await };
    let (exit, output) = tokio::try_join!(exec, collect)?;
    match exit {
        Exit(0) => Ok(output),
        Exit(code) => Err(Refusal::Failed(format!(
            "command terminated with exit code {code}: {}",
            String::from_utf8_lossy(&output)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "error executing command in container";

    #[test]
    fn the_exit_code_travels_as_a_cause() {
        let status: serde_json::Value = serde_json::from_slice(&report(&Ok(Exit(3)), Version::V4, EXEC)).unwrap();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(
            status["details"]["causes"][0],
            json!({"reason": "ExitCode", "message": "3"})
        );
        assert_eq!(
            &report(&Ok(Exit(0)), Version::V4, EXEC)[..],
            br#"{"metadata":{},"status":"Success"}"#
        );
    }

    #[test]
    fn old_versions_get_plain_text_and_silence_for_success() {
        assert!(report(&Ok(Exit(0)), Version::V3, EXEC).is_empty());
        let text = report(&Err(Refusal::Failed("no such file".to_owned())), Version::V1, EXEC);
        assert_eq!(&text[..], b"error executing command in container: no such file");
    }

    #[test]
    fn a_command_that_cannot_start_is_an_internal_error() {
        let failed = Err(Refusal::Failed("no such file".to_owned()));
        let status: serde_json::Value = serde_json::from_slice(&report(&failed, Version::V4, EXEC)).unwrap();
        assert_eq!(status["code"], 500);
        assert_eq!(
            status["message"],
            "Internal error occurred: error executing command in container: no such file"
        );
    }
}
