use super::*;
use clap::Parser as _;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn config(line: &[&str]) -> Result<Config, Error> {
    let args = Line::parse_from([&["kura"], line].concat()).args;
    Config::new(args, Secrets::default())
}

#[test]
fn nothing_is_required_and_the_default_stays_on_this_machine() {
    let config = config(&[]).unwrap();
    assert_eq!(config.address.to_string(), "127.0.0.1:4000");
    assert_eq!(config.trust.anonymous, Anonymous::ReadWrite);
    assert_eq!(config.tenant.as_str(), "default");
}

#[test]
fn writing_from_elsewhere_must_be_asked_for() {
    let open = config(&["--bind-address", "0.0.0.0"]).unwrap();
    assert_eq!(open.trust.anonymous, Anonymous::Read);
    let asked = config(&["--auth-anonymous", "read-write"]).unwrap();
    assert_eq!(asked.trust.anonymous, Anonymous::ReadWrite);
    assert_eq!(asked.address.to_string(), "[::]:4000");
    let deployed = config(&["--node-url", "https://node-1.example:7443"]).unwrap();
    assert_eq!(deployed.trust.anonymous, Anonymous::Read);
    assert_eq!(deployed.node_id.as_str(), "node-1.example");
}

#[test]
fn mistakes_are_named() {
    let refused = |flag, value| config(&[flag, value]).unwrap_err();
    assert!(matches!(refused("--tenant-id", "a b"), Error::Tenant(_)));
    assert!(matches!(
        refused("--max-keyvalue-bytes", "4194305"),
        Error::Bounds { .. }
    ));
    assert!(matches!(refused("--auth-enabled", "true"), Error::Trust(_)));
    let half = refused("--control-plane-client-id", "x");
    assert!(matches!(half, Error::Trust(_) | Error::HalfClient));
    assert!(matches!(refused("--node-url", "nonsense"), Error::NodeUrl(_)));
    assert!(matches!(
        refused("--analytics-server-url", "http://a"),
        Error::UnsignedAnalytics
    ));
    assert!(matches!(refused("--otel-traces-sample-ratio", "1.5"), Error::Ratio(_)));
    for url in ["collector", "ftp://collector", "collector:4318"] {
        let line = ["--otel-exporter-otlp-traces-endpoint", url];
        assert!(matches!(config(&line), Err(Error::TracesUrl(_))), "{url}");
    }
}

#[test]
fn traces_go_where_the_more_exact_setting_says() {
    let endpoint = |line: &[&str]| config(line).unwrap().traces.map(|traces| traces.endpoint);
    assert_eq!(endpoint(&[]), None);
    let base = ["--otel-exporter-otlp-endpoint", "http://base:4318/"];
    assert_eq!(endpoint(&base).unwrap(), "http://base:4318/v1/traces");
    let exact = ["--otel-exporter-otlp-traces-endpoint", "http://exact:4318/my/traces"];
    let both = [base, exact].concat();
    assert_eq!(endpoint(&both).unwrap(), "http://exact:4318/my/traces");
    let rootless = ["--otel-exporter-otlp-traces-endpoint", "http://bare:4318"];
    assert_eq!(endpoint(&rootless).unwrap(), "http://bare:4318/v1/traces");
}

#[test]
fn secrets_are_not_printed() {
    let server = "https://server.example";
    let line = format!("kura --auth-tuist-url {server} --control-plane-client-id me --analytics-server-url {server}");
    let args = Line::parse_from(line.split(' ')).args;
    let secret = |name: &str| Some(Secret::new(format!("{name}-value-1234")));
    let secrets = Secrets {
        jwt: secret("jwt"),
        client: secret("client"),
        turborepo: secret("turbo"),
        analytics: secret("analytics"),
    };
    let config = Config::new(args, secrets).unwrap();
    for text in [config.redacted().to_string(), format!("{config:?}")] {
        assert!(!text.contains("value-1234"), "{text}");
    }
}
