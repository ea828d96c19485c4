//! Reading files of YAML, and reading objects through the type of their kind.

use std::fs;
use std::path::{Path, PathBuf};

use kube::Resource;
use russet_api::{
    KuraInstance, RunnerPool, ScalewayAppleSiliconCluster, ScalewayAppleSiliconMachine,
    ScalewayAppleSiliconMachineTemplate, ScalewayElasticMetalMachine, ScalewayElasticMetalMachineTemplate,
    ScalewayInstanceMachine, ScalewayInstanceMachineTemplate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// All YAML files below a folder, sorted.
pub(crate) fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The one object in a file.
pub(crate) fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// What is left of an object after the type of its kind has read and written it.
pub(crate) fn through_type(object: &Value) -> Result<Value, String> {
    fn pass<T>(object: &Value) -> Result<Value, String>
    where
        T: DeserializeOwned + Serialize + Resource<DynamicType = ()>,
    {
        assert_eq!(object["apiVersion"], T::api_version(&()).as_ref());
        let typed: T = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
        serde_json::to_value(typed).map_err(|e| e.to_string())
    }
    match object["kind"].as_str().unwrap_or_default() {
        "ScalewayAppleSiliconCluster" => pass::<ScalewayAppleSiliconCluster>(object),
        "ScalewayAppleSiliconMachine" => pass::<ScalewayAppleSiliconMachine>(object),
        "ScalewayAppleSiliconMachineTemplate" => pass::<ScalewayAppleSiliconMachineTemplate>(object),
        "ScalewayElasticMetalMachine" => pass::<ScalewayElasticMetalMachine>(object),
        "ScalewayElasticMetalMachineTemplate" => pass::<ScalewayElasticMetalMachineTemplate>(object),
        "ScalewayInstanceMachine" => pass::<ScalewayInstanceMachine>(object),
        "ScalewayInstanceMachineTemplate" => pass::<ScalewayInstanceMachineTemplate>(object),
        "KuraInstance" => pass::<KuraInstance>(object),
        "RunnerPool" => pass::<RunnerPool>(object),
        other => Err(format!("unknown kind {other:?}")),
    }
}
