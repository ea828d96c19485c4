//! Probes: startup, liveness and readiness, by program, HTTP, TCP and gRPC.

use serde_json::{Value, json};

use super::super::Case;
use super::{STAY, wait};

/// Serves the volume over HTTP, wherever it is.
const SERVE: &str = "if [ -n \"$GUEST_ADDRESS\" ]; then exec python3 -m http.server --bind \"$GUEST_ADDRESS\" \
     --directory /opt/work 8080; else exec httpd -f -p 8080 -h /opt/work; fi";

/// Answers whoever asks over gRPC how it is: well, if there is a file `ready`. It speaks as much of HTTP/2 as that takes. A frame
/// is a length of three bytes, a kind, flags and the number of a stream; settings are taken as they are, and the end of the
/// first request is answered with headers, five bytes that announce two, and a trailer that says that the call went well.
const ANSWER: &str = r#"
take() { dd bs=1 count="$1" 2>/dev/null; }
printf '\000\000\000\004\000\000\000\000\000'
take 24 >/dev/null
while set -- $(take 9 | od -An -v -tu1) && [ $# = 9 ]; do
  take $(($1 * 65536 + $2 * 256 + $3)) >/dev/null
  case "$4 $5" in
    "4 0") printf '\000\000\000\004\001\000\000\000\000' ;;
    "0 1")
      if [ -e /opt/work/ready ]; then health='\001'; else health='\002'; fi
      printf '\000\000\024\001\004\000\000\000\001\210\017\020\020application/grpc'
      printf '\000\000\007\000\000\000\000\000\001\000\000\000\000\002\010'"$health"
      printf '\000\000\017\001\005\000\000\000\001\000\013grpc-status\0010'
      ;;
  esac
done
"#;

/// Serves [`ANSWER`], wherever it is.
const SERVE_ANSWER: &str = r#"if [ -z "$GUEST_ADDRESS" ]; then exec nc -ll -p 9090 -e sh -c "$ANSWER"; fi
exec python3 -c '
import os, socketserver, subprocess
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        subprocess.run(["sh", "-c", os.environ["ANSWER"]], stdin=self.request, stdout=self.request)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer((os.environ["GUEST_ADDRESS"], 9090), Answer).serve_forever()
'"#;

fn probe(how: Value, failures: u32) -> Value {
    let mut probe = json!({"periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": failures});
    if let (Value::Object(probe), Value::Object(how)) = (&mut probe, how) {
        probe.extend(how);
    }
    probe
}

fn program(file: &str) -> Value {
    json!({"exec": {"command": ["test", "-e", format!("/opt/work/{file}")]}})
}

pub(super) fn cases() -> Vec<Case> {
    let http = json!({"httpGet": {"path": "/ready", "port": 8080}});
    let always = || json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 2});
    let serve_later = format!("{}; {SERVE}", wait("go"));
    vec![
        Case::new("readiness-exec", "ready, and not any more", STAY)
            .main(json!({"readinessProbe": probe(program("ready"), 1)}))
            .goes("main is running, make ready, Ready, remove ready, not Ready"),
        Case::new("readiness-http", "ready when a page is there", SERVE)
            .main(json!({"readinessProbe": probe(http.clone(), 1)}))
            .goes("main is running, make ready, Ready, remove ready, not Ready"),
        Case::new("readiness-tcp", "ready when a port is open", &serve_later)
            .main(json!({"readinessProbe": probe(json!({"tcpSocket": {"port": 8080}}), 1)}))
            .goes("main is running, make go, Ready"),
        Case::new("readiness-grpc", "ready when it says so over gRPC", SERVE_ANSWER)
            .main(json!({
                "env": [{"name": "ANSWER", "value": ANSWER}],
                "readinessProbe": probe(json!({"grpc": {"port": 9090}}), 1),
            }))
            .goes("main is running, make ready, Ready, remove ready, not Ready"),
        Case::new("liveness-exec", "restarted when a program says so", STAY)
            .spec(always())
            .main(json!({"livenessProbe": probe(program("alive"), 1), "startupProbe": probe(program("alive"), 600)}))
            .goes("main is running, make alive, Ready, remove alive, main again 1, not Ready"),
        Case::new("liveness-http", "restarted when a page is gone", SERVE)
            .spec(always())
            .main(json!({"livenessProbe": probe(http.clone(), 1), "startupProbe": probe(http, 600)}))
            .goes("main is running, make ready, Ready, remove ready, main again 1, not Ready"),
        Case::new("liveness-tcp", "restarted when a port is closed", STAY)
            .spec(always())
            .main(json!({"livenessProbe": probe(json!({"tcpSocket": {"port": 8080}}), 2)}))
            .goes("main again 1"),
        Case::new("liveness-grpc", "restarted when nobody answers gRPC", STAY)
            .spec(always())
            .main(json!({"livenessProbe": probe(json!({"grpc": {"port": 9090}}), 2)}))
            .goes("main again 1"),
        Case::new("liveness-never", "a probe ends a Pod that is never restarted", STAY)
            .main(json!({"livenessProbe": probe(program("alive"), 1), "startupProbe": probe(program("alive"), 600)}))
            .goes("main is running, make alive, Ready, remove alive, over"),
        Case::new("startup-exec", "started, then ready", STAY)
            .main(json!({
                "startupProbe": probe(program("up"), 600), "readinessProbe": probe(program("ready"), 1),
            }))
            .goes("main is running, make up, main started, make ready, Ready"),
        Case::new("startup-fails", "restarted when it does not start", STAY)
            .spec(always())
            .main(json!({"startupProbe": probe(program("up"), 2)}))
            .goes("main again 1"),
    ]
}
