//! Packages of the distribution. The package tools are stand-ins here, so that the test runs anywhere and reaches no mirror.

use std::fs;

use russet_parts::{Origin, SourceError};

use crate::support::{Fixture, Recorder, gives, output_of};

const PART: &str = r#"
[[part]]
name = "tiny"
version = "distribution"
about = "a test"
[[part.tool]]
name = "hello"
[[part.tool]]
name = "plugins"
kind = "directory"
[part.system]
tools = ["hello"]
[part.debian]
packages = ["tiny-tools"]
paths = { hello = "usr/bin/hello", plugins = "usr/lib/plugins" }
"#;

/// `apt-get download` leaves a package in the current folder; `dpkg -x` unpacks it.
fn package_tools(fixture: &mut Fixture, apt_get: &str) {
    fixture.shadow("apt-get", apt_get);
    fixture.shadow(
        "dpkg",
        "mkdir -p $3/usr/bin $3/usr/lib/plugins && printf '#!/bin/sh\\necho packaged\\n' > $3/usr/bin/hello && \
         chmod +x $3/usr/bin/hello && echo bridge > $3/usr/lib/plugins/bridge",
    );
    fixture.shadow("dpkg-deb", "printf 'Package: tiny-tools\\nVersion: 1:2.3-4\\n'");
}

#[tokio::test]
async fn tools_are_unpacked_from_a_package_and_its_version_is_kept() {
    let mut fixture = Fixture::new();
    package_tools(&mut fixture, "[ \"$2\" = download ] && touch $3_1%3a2.3-4_amd64.deb");
    let tools = fixture.tools(PART, &["hello", "plugins"]).await;
    let hello = tools.located("hello").unwrap();
    let found = (hello.origin, hello.version.as_deref());
    assert_eq!(found, (Origin::Debian, Some("1:2.3-4")));
    assert_eq!(output_of(&hello.path), "packaged\n");
    let bridge = fs::read_to_string(tools.path("plugins").unwrap().join("bridge")).unwrap();
    assert_eq!(bridge, "bridge\n");
    let kept = ["bridge", "hello", "hello.receipt.toml", "plugins.receipt.toml"];
    assert_eq!(fixture.cached_files(), kept);
}

/// As in a fresh container. Only root may update the lists; another user gets the reason.
#[tokio::test]
async fn missing_package_lists_are_fetched_once_if_we_may() {
    let mut fixture = Fixture::new();
    let lists = fixture.folder.path().join("lists");
    package_tools(
        &mut fixture,
        &format!(
            "case $2 in update) touch {0};; download) [ -e {0} ] || {{ echo 'E: Unable to locate package' >&2; exit 100; }}; \
             touch x.deb;; esac",
            lists.display()
        ),
    );
    let recorder = Recorder::default();
    let result = fixture.store(PART).ensure(&["hello"], &recorder).await;
    if rustix::process::geteuid().is_root() {
        result.unwrap();
        assert!(recorder.has("updating the package lists"), "{:?}", recorder.all());
    } else {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("Unable to locate package"), "{error}");
    }
}

#[tokio::test]
async fn a_system_that_is_no_debian_is_told_what_to_install() {
    let mut fixture = Fixture::new();
    fixture.without_programs();
    let error = fixture.refused(PART, &["hello"]).await;
    gives!(error, SourceError::NotDebian { .. });
    assert!(
        error
            .to_string()
            .contains("install tiny-tools with the package manager"),
        "{error}"
    );
}

#[tokio::test]
async fn a_tool_of_the_system_will_do_where_the_version_does_not_matter() {
    let mut fixture = Fixture::new();
    fixture.without_programs();
    fixture.shadow("hello", "echo system");
    let tools = fixture.tools(PART, &["hello"]).await;
    assert_eq!(tools.located("hello").unwrap().origin, Origin::System);
}

const TREE: &str = r#"
[[part]]
name = "tiny"
version = "1.0"
about = "a test"
[[part.tool]]
name = "tree"
kind = "directory"
[part.debian]
packages = ["tiny-tools"]
tree = true
paths = { tree = "." }
"#;

/// Gradle is eighty packages that link to each other; one of them alone is of no use.
#[tokio::test]
async fn a_tree_holds_what_the_package_needs_and_is_not_installed() {
    let mut fixture = Fixture::new();
    fixture.shadow(
        "apt-get",
        "case \"$2\" in install) [ \"$3\" = --simulate ] || exit 1; echo 'Inst tiny-libs (1.0 X [all])'; echo 'Inst tiny-tools (1.0 X [all])';; \
         download) shift 2; for p; do touch ${p}_1.0_all.deb; done;; *) exit 1;; esac",
    );
    fixture.shadow(
        "dpkg",
        "mkdir -p $3/usr/lib $3/usr/bin; case \"$2\" in *libs*) echo lib > $3/usr/lib/x;; *) ln -s /usr/lib/x $3/usr/bin/x;; esac",
    );
    fixture.shadow("dpkg-deb", "printf 'Package: tiny-tools\\nVersion: 1.0-1\\n'");
    let tools = fixture.tools(TREE, &["tree"]).await;
    let tree = tools.path("tree").unwrap();
    assert_eq!(fs::read_to_string(tree.join("usr/bin/x")).unwrap(), "lib\n");
    assert_eq!(tools.located("tree").unwrap().version.as_deref(), Some("1.0-1"));
}
