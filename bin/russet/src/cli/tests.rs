use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_shows_examples() {
    let mut cli = Cli::command();
    for command in cli.get_subcommands_mut() {
        let help = command.render_long_help().to_string();
        assert!(help.contains("Examples:"), "{} has none", command.get_name());
    }
}

#[test]
fn the_help_names_every_field_of_the_status_document() {
    fn names(value: &serde_json::Value, all: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    all.push(name.clone());
                    names(value, all);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, all)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    let healthy = serde_json::to_value(crate::status::document::tests::healthy());
    names(&healthy.unwrap(), &mut all);
    assert!(all.len() > 30);
    let words = STATUS_FIELDS.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words: Vec<&str> = words.collect();
    for name in all {
        assert!(words.contains(&name.as_str()), "{name} is not documented");
    }
}

#[test]
fn times_are_read_in_seconds_minutes_and_hours() {
    assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("5m"), Ok(Duration::from_mins(5)));
    assert_eq!(duration("1h"), Ok(Duration::from_hours(1)));
    for wrong in ["", "m", "5 m", "-5s", "0s", "9d", "99999999999999999999h", "25h"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_cache_is_named_by_a_plain_url() {
    let plain = cache_url("http://127.0.0.1:4000/");
    assert_eq!(plain, Ok("http://127.0.0.1:4000".to_owned()));
    for wrong in ["127.0.0.1:4000", "ftp://x", "http://", "http://u:p@x", "http://a b"] {
        assert!(cache_url(wrong).is_err(), "{wrong}");
    }
    assert!(project_name("ios-app").is_ok());
    for wrong in ["", "a/b", "..", "a b", "a%2fb"] {
        assert!(project_name(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn kubectl_arguments_pass_through_with_and_without_dashes() {
    for line in ["russet kubectl get -o yaml crd", "russet kubectl -- get -o yaml crd"] {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Kubectl(kubectl) = cli.command else {
            panic!("{line}")
        };
        assert_eq!(kubectl.args, ["get", "-o", "yaml", "crd"]);
    }
}

#[test]
fn a_mistyped_command_suggests_the_right_one() {
    let error = Cli::try_parse_from(["russet", "statsu"]).unwrap_err().to_string();
    assert!(error.contains("'status'"), "{error}");
}

#[test]
fn an_existing_cluster_excludes_what_only_makes_sense_for_our_own() {
    for flag in ["--detach", "--durable", "--no-capi"] {
        let line = ["russet", "up", "--kubeconfig", "k", flag];
        assert!(Cli::try_parse_from(line).is_err(), "{flag}");
    }
    assert!(Cli::try_parse_from(["russet", "up", "--context", "c"]).is_err());
}
