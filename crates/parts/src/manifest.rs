//! The manifest: which parts exist, at which version, and where each comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Error, platform::Platform};

/// Modules that come with the manifest, of Go or npm: module name to its files (name, content).
pub type Modules = BTreeMap<String, Vec<(String, String)>>;

macro_rules! module {
    ($name:literal) => {
        (
            $name,
            [
                ("go.mod", include_str!(concat!("../go/", $name, "/go.mod"))),
                ("go.sum", include_str!(concat!("../go/", $name, "/go.sum"))),
                ("tools.go", include_str!(concat!("../go/", $name, "/tools.go"))),
            ],
        )
    };
}

/// Each is a module of its own: they need different versions of the same dependencies.
const EMBEDDED: &[(&str, [(&str, &str); 3])] = &[
    module!("cluster-api"),
    module!("etcd"),
    module!("helm"),
    module!("kube-router"),
    module!("kubeconform"),
    module!("kubernetes"),
    module!("local-path-provisioner"),
    module!("metrics-server"),
    module!("tailscale"),
];

/// All parts.
#[derive(Debug, Clone)]
pub struct Manifest {
    parts: Vec<Part>,
    modules: Modules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    part: Vec<Part>,
}

/// Something obtained as a whole, at one version.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub name: String,
    pub version: String,
    pub about: String,
    /// What the user may do without it.
    pub instead: Option<String>,
    #[serde(rename = "tool")]
    pub tools: Vec<Tool>,
    pub(crate) release: Option<Release>,
    pub(crate) go: Option<Go>,
    pub(crate) debian: Option<Debian>,
    pub(crate) npm: Option<Npm>,
    pub(crate) pypi: Option<Pypi>,
    pub(crate) maven: Option<Maven>,
    pub(crate) system: Option<System>,
}

/// One program (or folder of files) of a part.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub kind: ToolKind,
    /// Operating systems it exists for; empty means all.
    #[serde(default)]
    pub os: Vec<String>,
    /// How it is asked for its version, if it can be.
    #[serde(default)]
    pub version_args: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    #[default]
    Program,
    Directory,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    pub(crate) url: String,
    pub(crate) checksum: String,
    #[serde(default)]
    pub(crate) os: Vec<String>,
    pub(crate) archive: Option<Archive>,
    /// Inside the archive.
    pub(crate) path: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Archive {
    #[serde(rename = "tar.gz")]
    TarGz,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Go {
    pub(crate) module: String,
    #[serde(default)]
    pub(crate) ldflags: String,
    /// Disk space a build from nothing takes, Go's caches included.
    pub(crate) space_mib: u64,
    /// Tool to main package.
    #[serde(default)]
    pub(crate) packages: BTreeMap<String, String>,
    /// Tool to a folder inside a module.
    #[serde(default)]
    pub(crate) copies: BTreeMap<String, ModuleFolder>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModuleFolder {
    pub(crate) module: String,
    pub(crate) path: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Debian {
    /// The first is the part itself; the others are libraries it wants and a system need not have.
    pub(crate) packages: Vec<String>,
    /// Tool to its path inside the packages.
    pub(crate) paths: BTreeMap<String, String>,
    /// Unpack also what the packages depend on and this system lacks, and keep it all as one tree (the path of the tool is `.`).
    #[serde(default)]
    pub(crate) tree: bool,
}

/// Packages of the npm registry. The module brings `package.json` and `package-lock.json`, which fixes versions and digests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Npm {
    pub(crate) module: String,
    pub(crate) space_mib: u64,
    /// Tool to its path beside `node_modules`; `.` is the whole folder.
    pub(crate) paths: BTreeMap<String, String>,
}

/// A wheel of the Python registry.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pypi {
    pub(crate) package: String,
    /// Of the wheel, one per platform.
    pub(crate) sha256: Vec<String>,
    pub(crate) space_mib: u64,
    /// Tool to its path inside the wheel.
    pub(crate) paths: BTreeMap<String, String>,
}

/// An archive of the Maven registry.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Maven {
    /// `group:artifact:version:type:classifier`; `{version}` is replaced.
    pub(crate) artifact: String,
    pub(crate) space_mib: u64,
    /// Tool to its path inside the archive.
    pub(crate) paths: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct System {
    pub(crate) tools: Vec<String>,
}

impl Manifest {
    /// `parts.toml` and the Go modules, as compiled into this program.
    pub fn embedded() -> Self {
        let modules = EMBEDDED
            .iter()
            .map(|(name, files)| {
                (
                    (*name).to_owned(),
                    files
                        .iter()
                        .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
                        .collect(),
                )
            })
            .collect();
        #[expect(
            clippy::expect_used,
            reason = "the file is part of this program, and a test parses it"
        )]
        Self::parse(include_str!("../parts.toml"), modules).expect("the embedded manifest is valid")
    }

    /// A manifest in the format of `parts.toml`.
    pub fn parse(text: &str, modules: Modules) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::Manifest(error.to_string()))?;
        let manifest = Self {
            parts: file.part,
            modules,
        };
        manifest.validate()?;
        Ok(manifest)
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The tool of that name, and its part.
    pub fn tool(&self, name: &str) -> Result<(&Part, &Tool), Error> {
        self.all_tools()
            .find(|(_, tool)| tool.name == name)
            .ok_or_else(|| Error::UnknownTool {
                tool: name.to_owned(),
                known: self.all_tools().map(|(_, tool)| tool.name.clone()).collect(),
            })
    }

    pub(crate) fn all_tools(&self) -> impl Iterator<Item = (&Part, &Tool)> {
        self.parts
            .iter()
            .flat_map(|part| part.tools.iter().map(move |tool| (part, tool)))
    }

    pub(crate) fn module(&self, name: &str) -> Result<&[(String, String)], Error> {
        self.modules
            .get(name)
            .map(Vec::as_slice)
            .ok_or_else(|| Error::Manifest(format!("there is no module named {name:?}")))
    }

    fn validate(&self) -> Result<(), Error> {
        let wrong = |message: String| Err(Error::Manifest(message));
        let mut parts = BTreeSet::new();
        let mut tools = BTreeSet::new();
        for part in &self.parts {
            // Names and versions become file names.
            for word in [&part.name, &part.version]
                .into_iter()
                .chain(part.tools.iter().map(|tool| &tool.name))
            {
                if word.is_empty()
                    || word.starts_with('.')
                    || !word
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '+'))
                {
                    return wrong(format!("part {:?}: {word:?} is not usable as a file name", part.name));
                }
            }
            if !parts.insert(&part.name) {
                return wrong(format!("part {:?} is listed twice", part.name));
            }
            for tool in &part.tools {
                if !tools.insert(&tool.name) {
                    return wrong(format!("tool {:?} is listed twice", tool.name));
                }
            }
            let mut named: Vec<&String> = Vec::new();
            if let Some(go) = &part.go {
                self.module(&go.module)?;
                named.extend(go.packages.keys().chain(go.copies.keys()));
                let binaries: BTreeSet<_> = go.packages.values().map(|package| binary_name(package)).collect();
                if binaries.len() != go.packages.len() {
                    return wrong(format!(
                        "part {:?}: two of its Go packages make a program of the same name",
                        part.name
                    ));
                }
            }
            if let Some(debian) = &part.debian {
                named.extend(debian.paths.keys());
            }
            if let Some(npm) = &part.npm {
                self.module(&npm.module)?;
                named.extend(npm.paths.keys());
            }
            if let Some(pypi) = &part.pypi {
                named.extend(pypi.paths.keys());
            }
            if let Some(maven) = &part.maven {
                named.extend(maven.paths.keys());
            }
            if let Some(system) = &part.system {
                named.extend(&system.tools);
            }
            if let Some(release) = &part.release
                && release.archive.is_some() != release.path.is_some()
            {
                return wrong(format!("part {:?}: archive and path go together", part.name));
            }
            for name in named {
                if !part.tools.iter().any(|tool| &tool.name == name) {
                    return wrong(format!(
                        "part {:?} has a source for {name:?}, which is not one of its tools",
                        part.name
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Part {
    /// Replaces `{version}`, `{tool}` and so on.
    pub(crate) fn expand(&self, template: &str, tool: &str, platform: &Platform) -> String {
        let semver = self.version.trim_start_matches('v');
        let mut numbers = semver.split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        template
            .replace("{version}", &self.version)
            .replace("{semver}", semver)
            .replace("{major}", major)
            .replace("{minor}", minor)
            .replace("{os}", &platform.os)
            .replace("{arch}", &platform.arch)
            .replace("{tool}", tool)
    }

    pub(crate) fn on_path(&self, tool: &str) -> bool {
        self.system
            .as_ref()
            .is_some_and(|system| system.tools.iter().any(|name| name == tool))
    }
}

impl Tool {
    pub fn exists_for(&self, platform: &Platform) -> bool {
        covers(&self.os, platform)
    }
}

/// An empty list means every operating system.
pub(crate) fn covers(os: &[String], platform: &Platform) -> bool {
    os.is_empty() || os.contains(&platform.os)
}

/// What the go command names the program of a package: the last element of its path that is not a major version.
pub(crate) fn binary_name(package: &str) -> &str {
    let is_major = |element: &str| {
        element
            .strip_prefix('v')
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
    };
    package
        .rsplit('/')
        .find(|element| !is_major(element))
        .unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_manifest_has_every_tool_the_other_crates_name() {
        let manifest = Manifest::embedded();
        let control_plane = "etcd kube-apiserver kube-controller-manager kube-scheduler capi-core cluster-api-config";
        let node = "kubelet kube-proxy containerd ctr containerd-shim-runc-v2 runc busybox cni-plugins";
        let people = "kubectl helm zsh";
        for tool in [control_plane, node, people].iter().flat_map(|tools| tools.split(' ')) {
            manifest.tool(tool).unwrap();
        }
    }

    /// A version is written in parts.toml; go.mod has to repeat it, since the go command reads only that.
    #[test]
    fn the_go_modules_require_the_versions_of_the_manifest() {
        let manifest = Manifest::embedded();
        for part in manifest.parts() {
            let Some(go) = &part.go else { continue };
            let mut files = manifest.module(&go.module).unwrap().iter();
            let (_, go_mod) = files.find(|(name, _)| name == "go.mod").unwrap();
            for package in go.packages.values() {
                let required = go_mod.lines().any(|line| {
                    let mut words = line.trim().trim_start_matches("require ").split_whitespace();
                    words.next().is_some_and(|module| package.starts_with(module))
                        && words.next() == Some(&part.version)
                });
                let (module, version) = (&go.module, &part.version);
                assert!(required, "go/{module}/go.mod does not require {package} at {version}");
            }
        }
    }

    #[test]
    fn templates_know_the_parts_of_a_version() {
        let manifest = Manifest::embedded();
        let (part, _) = manifest.tool("kubectl").unwrap();
        let platform = Platform {
            os: "linux".into(),
            arch: "arm64".into(),
        };
        let template = "{version} {semver} {major}.{minor} {os}/{arch}/{tool}";
        let semver = part.version.trim_start_matches('v');
        let minor: Vec<_> = semver.split('.').collect();
        let expected = format!("v{semver} {semver} {}.{} linux/arm64/kubectl", minor[0], minor[1]);
        assert_eq!(part.expand(template, "kubectl", &platform), expected);
    }

    #[test]
    fn programs_are_named_as_go_names_them() {
        assert_eq!(binary_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(binary_name("sigs.k8s.io/cluster-api/core"), "core");
        assert_eq!(binary_name("example.org/vault"), "vault");
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_known_ones() {
        let error = Manifest::embedded().tool("kubctl").unwrap_err().to_string();
        assert!(error.contains("\"kubctl\"") && error.contains("kubectl"), "{error}");
    }

    #[test]
    fn a_manifest_that_contradicts_itself_is_refused() {
        let part = "[[part]]\nname='a'\nversion='1'\nabout=''\n[[part.tool]]\nname='x'\n";
        let cases = [
            (format!("{part}{part}"), "twice"),
            (part.replace("'1'", "'../1'"), "file name"),
            (
                format!("{part}[part.debian]\npackages=['p']\npaths={{y='/y'}}"),
                "not one of its tools",
            ),
            (format!("{part}[part.go]\nmodule='none'\nspace_mib=1"), "no module"),
            (
                format!("{part}[part.release]\nurl='u'\nchecksum='c'\narchive='tar.gz'"),
                "go together",
            ),
            (format!("{part}[part.release]\nurl='u'"), "checksum"),
            (part.replace("about", "abuot"), "abuot"),
        ];
        for (text, expected) in cases {
            let error = Manifest::parse(&text, Modules::new()).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
