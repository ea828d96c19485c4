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
    assert_eq!(
        (deployed.trust.anonymous, deployed.node_id.as_str()),
        (Anonymous::Read, "node-1.example")
    );
}

#[test]
fn mistakes_are_named() {
    assert!(matches!(config(&["--tenant-id", "a b"]), Err(Error::Tenant(_))));
    assert!(matches!(
        config(&["--max-keyvalue-bytes", "4194305"]),
        Err(Error::Bounds { .. })
    ));
    assert!(matches!(config(&["--auth-enabled", "true"]), Err(Error::Trust(_))));
    assert!(matches!(
        config(&["--control-plane-client-id", "x"]),
        Err(Error::Trust(_) | Error::HalfClient)
    ));
    assert!(matches!(config(&["--node-url", "nonsense"]), Err(Error::NodeUrl(_))));
    assert!(matches!(
        config(&["--analytics-server-url", "http://a"]),
        Err(Error::UnsignedAnalytics)
    ));
    for url in ["collector", "ftp://collector", "collector:4318"] {
        let line = ["--otel-exporter-otlp-traces-endpoint", url];
        assert!(matches!(config(&line), Err(Error::TracesUrl(_))), "{url}");
    }
    assert!(matches!(
        config(&["--otel-traces-sample-ratio", "1.5"]),
        Err(Error::Ratio(_))
    ));
}

#[test]
fn traces_go_where_the_more_exact_setting_says() {
    let endpoint = |line: &[&str]| config(line).unwrap().traces.map(|traces| traces.endpoint);
    assert_eq!(endpoint(&[]), None);
    let base = ["--otel-exporter-otlp-endpoint", "http://base:4318/"];
    assert_eq!(endpoint(&base).unwrap(), "http://base:4318/v1/traces");
    let exact = ["--otel-exporter-otlp-traces-endpoint", "http://exact:4318/my/traces"];
    assert_eq!(
        endpoint(&[base, exact].concat()).unwrap(),
        "http://exact:4318/my/traces"
    );
    let rootless = ["--otel-exporter-otlp-traces-endpoint", "http://bare:4318"];
    assert_eq!(endpoint(&rootless).unwrap(), "http://bare:4318/v1/traces");
}

#[test]
fn secrets_are_not_printed() {
    let args = Line::parse_from([
        "kura",
        "--auth-tuist-url",
        "https://server.example",
        "--control-plane-client-id",
        "me",
        "--analytics-server-url",
        "https://server.example",
    ])
    .args;
    let secrets = Secrets {
        jwt: Some(Secret::new("jwt-value-1234".to_owned())),
        client: Some(Secret::new("client-value-1234".to_owned())),
        turborepo: Some(Secret::new("turbo-value-1234".to_owned())),
        analytics: Some(Secret::new("analytics-value-1234".to_owned())),
    };
    let config = Config::new(args, secrets).unwrap();
    for text in [config.redacted().to_string(), format!("{config:?}")] {
        assert!(!text.contains("value-1234"), "{text}");
    }
}
