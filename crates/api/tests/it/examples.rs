use std::fs;
use std::path::PathBuf;

use crate::object::{read, through_type, yaml_files};

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_kind_has_an_example_that_the_types_keep_whole() {
    for crd in russet_api::all_crds() {
        let file = examples().join(format!("{}.yaml", crd.spec.names.singular.unwrap()));
        let object = read(&file);
        assert_eq!(object["kind"], crd.spec.names.kind.as_str());
        let after = through_type(&object).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(after, object, "{}", file.display());
    }
}

#[test]
fn every_wrong_example_says_what_to_expect() {
    let files = yaml_files(&examples().join("invalid"));
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
        assert!(
            expected.is_some_and(|e| e.len() > 10),
            "{} must begin with `# expect: <message>`",
            file.display()
        );
        assert!(read(&file)["kind"].is_string());
    }
}
