//! Packages of the npm, Python and Maven registries. Their clients are stand-ins here, so that the test runs anywhere and reaches no
//! registry.

use std::fs;

use russet_parts::{Origin, Silent, SourceError};

use crate::support::{Fixture, output_of, reasons};

const PYPI: &str = r#"
[[part]]
name = "tiny"
version = "1.2.3"
about = "a test"
[[part.tool]]
name = "hello"
[part.pypi]
package = "tiny-bin"
sha256 = ["aa", "bb"]
space_mib = 1
paths = { hello = "bin/hello" }
"#;

const NPM: &str = r#"
[[part]]
name = "tiny"
version = "1.2.3"
about = "a test"
[[part.tool]]
name = "modules"
kind = "directory"
[part.npm]
module = "tiny"
space_mib = 1
paths = { modules = "." }
"#;

const MAVEN: &str = r#"
[[part]]
name = "tiny"
version = "1.2.3"
about = "a test"
[[part.tool]]
name = "home"
kind = "directory"
[part.maven]
artifact = "org.example:tiny:{version}:tar.gz:bin"
space_mib = 1
paths = { home = "tiny-{version}" }
"#;

/// The value of the argument after `--target`, or of `-DoutputDirectory=`.
const TARGET: &str = "for arg; do case \"$arg\" in -DoutputDirectory=*) target=${arg#*=};; esac; \
    [ \"$last\" = --target ] && target=$arg; [ \"$last\" = -r ] && wanted=$arg; last=$arg; done; ";

#[tokio::test]
async fn a_wheel_is_asked_for_by_its_digests_and_its_program_is_used() {
    let mut fixture = Fixture::new();
    fixture.shadow(
        "python3",
        &format!(
            "{TARGET} grep -q 'tiny-bin==1.2.3 --hash=sha256:aa --hash=sha256:bb' \"$wanted\" || exit 9; \
             mkdir -p $target/bin && printf '#!/bin/sh\\necho wheel\\n' > $target/bin/hello"
        ),
    );
    let tools = fixture.tools(PYPI, &["hello"]).await;
    let hello = tools.located("hello").unwrap();
    assert_eq!((hello.origin, hello.version.as_deref()), (Origin::Pypi, Some("1.2.3")));
    assert_eq!(output_of(&hello.path), "wheel\n");
}

/// The module of the fixture stands in for `package.json` and the lock file.
#[tokio::test]
async fn an_npm_package_is_installed_beside_its_lock_file_and_moved_as_a_whole() {
    let mut fixture = Fixture::new();
    fixture.shadow(
        "npm",
        "[ \"$1\" = install ] && [ -f go.mod ] && mkdir -p node_modules/.bin node_modules/x && echo x > node_modules/x/cli.js && \
         ln -s ../x/cli.js node_modules/.bin/x",
    );
    let store = fixture.store(NPM);
    let first = store.ensure(&["modules"], &Silent).await.unwrap();
    let modules = first.path("modules").unwrap();
    assert_eq!(fs::read_to_string(modules.join("node_modules/.bin/x")).unwrap(), "x\n");
    // Found, not installed again: this npm would fail.
    fixture.shadow("npm", "exit 1");
    let again = fixture.tools(NPM, &["modules"]).await;
    assert_eq!(again.path("modules").unwrap(), modules);
}

#[tokio::test]
async fn an_archive_of_the_maven_registry_is_kept_with_its_links() {
    let mut fixture = Fixture::new();
    fixture.shadow(
        "mvn",
        &format!("{TARGET} mkdir -p $target/tiny-1.2.3/bin && echo x > $target/tiny-1.2.3/bin/mvn && ln -s mvn $target/tiny-1.2.3/bin/mvnDebug"),
    );
    let tools = fixture.tools(MAVEN, &["home"]).await;
    let home = tools.path("home").unwrap();
    assert_eq!(fs::read_link(home.join("bin/mvnDebug")).unwrap().to_str(), Some("mvn"));
    assert_eq!(fs::read_to_string(home.join("bin/mvnDebug")).unwrap(), "x\n");
}

#[tokio::test]
async fn a_registry_that_fails_is_quoted_with_the_way_out() {
    let mut fixture = Fixture::new();
    fixture.shadow("mvn", "echo '[ERROR] Could not transfer artifact'; exit 1");
    let error = fixture.refused(MAVEN, &["home"]).await;
    let text = error.to_string();
    assert!(text.contains("Could not transfer artifact"), "{text}");
    assert!(text.contains("reaches its registry"), "{text}");
}

#[tokio::test]
async fn a_missing_client_is_named_with_what_brings_it() {
    let mut fixture = Fixture::new();
    fixture.without_programs();
    let error = fixture.refused(PYPI, &["hello"]).await;
    let reasons = reasons(&error);
    let missing = matches!(reasons.as_slice(), [SourceError::NoCommand { command: "python3", .. }]);
    assert!(missing, "{reasons:?}");
}

#[tokio::test]
async fn a_package_without_the_program_is_said_so() {
    let mut fixture = Fixture::new();
    fixture.shadow("python3", &format!("{TARGET} mkdir -p $target/bin"));
    let error = fixture.refused(PYPI, &["hello"]).await;
    assert!(error.to_string().contains("does not contain bin/hello"), "{error}");
}
