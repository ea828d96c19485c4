use std::collections::BTreeSet;
use std::path::Path;

use crate::object::{read, through_type, yaml_files};

#[test]
fn objects_of_earlier_releases_survive_reading_and_writing() {
    let mut kinds = BTreeSet::new();
    for file in yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")) {
        let object = read(&file);
        let after = through_type(&object).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(after, object, "{}", file.display());
        kinds.insert(object["kind"].as_str().unwrap().to_owned());
    }
    let all: BTreeSet<_> = russet_api::all_crds().into_iter().map(|c| c.spec.names.kind).collect();
    assert_eq!(kinds, all, "every kind needs a fixture");
}

/// The phase of the first Macs is a word no later release wrote; it must not hide the object.
#[test]
fn an_unknown_phase_is_kept() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/0001-first-macs/mac.yaml");
    let mac: russet_api::ScalewayAppleSiliconMachine = serde_json::from_value(read(&file)).unwrap();
    let phase = mac.status.unwrap().phase.unwrap();
    assert_eq!(phase, russet_api::machine::Phase::Other("Provisioned".into()));
}
