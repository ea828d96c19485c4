//! Maven with the build-cache extension: one jar. Plugins come from a repository that was filled once, so a build is offline
//! (`-o`), which does not turn the cache off.

use std::{fs, path::Path};

use crate::{
    Claim, Error, Kit, Target,
    plan::{Invocation, Plan, Site},
};

/// Name of the filled repository; another extension or another set of plugins needs another.
pub(crate) const REPOSITORY: &str = "3.9.12-cache-1.3.0-1";

const EXTENSIONS: &str = "\
<extensions>
  <extension>
    <groupId>org.apache.maven.extensions</groupId>
    <artifactId>maven-build-cache-extension</artifactId>
    <version>1.3.0</version>
  </extension>
</extensions>
";

/// The timestamp makes two builds of the same source give the same bytes.
const POM: &str = "\
<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>answer</artifactId>
  <version>1</version>
  <packaging>jar</packaging>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
    <project.build.outputTimestamp>2026-01-01T00:00:00Z</project.build.outputTimestamp>
  </properties>
</project>
";

const SETTINGS: &str = "\
<settings>
  <servers>
    <server>
      <id>russet</id>
      <username>russet</username>
      <password>${env.CACHE_TOKEN}</password>
    </server>
  </servers>
</settings>
";

/// A class whose bytes depend on the seed.
pub(super) fn source(seed: &str) -> String {
    format!("public class Answer {{\n    public static final String OF = \"{seed}\";\n}}\n")
}

fn configuration(url: &str) -> String {
    format!(
        "<cache xmlns=\"http://maven.apache.org/BUILD-CACHE-CONFIG/1.0.0\">\n  <configuration>\n    <enabled>true</enabled>\n    \
         <remote enabled=\"true\" saveToRemote=\"true\" id=\"russet\">\n      <url>{url}</url>\n    </remote>\n  \
         </configuration>\n</cache>\n"
    )
}

/// A project that uses every plugin and the extension, to fill a repository with.
pub(crate) fn write_seed(project: &Path) -> Result<(), Error> {
    let files = [
        (".mvn/extensions.xml", EXTENSIONS.to_owned()),
        (".mvn/maven-build-cache-config.xml", configuration("http://127.0.0.1:9")),
        ("pom.xml", POM.to_owned()),
        ("src/main/java/Answer.java", source("seed")),
    ];
    for (name, content) in files {
        let path = project.join(name);
        let folder = path.parent().unwrap_or(project);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        fs::write(&path, content).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    plan.file(project.join(".mvn/extensions.xml"), EXTENSIONS);
    plan.file(
        project.join(".mvn/maven-build-cache-config.xml"),
        configuration(&target.under("maven")),
    );
    plan.file(project.join("pom.xml"), POM);
    plan.file(project.join("src/main/java/Answer.java"), source(&site.seed));
    let settings = site.dir.join("settings.xml");
    let servers = if target.token().is_some() {
        SETTINGS
    } else {
        "<settings/>\n"
    };
    plan.file(&settings, servers);
    plan.state = vec![project.join("target")];
    plan.outputs = vec![project.join("target/answer-1.jar")];
    let mut mvn = Invocation::new(kit.main.join("bin/mvn"), &project)
        .args(["-B", "-ntp", "-o", "-s"])
        .args([&settings])
        .args([format!("-Dmaven.repo.local={}", kit.aid.display())])
        .args([format!(
            "-Dmaven.build.cache.location={}",
            site.state("maven-build-cache").display()
        )])
        .args(["package"])
        .env("MAVEN_OPTS", "-Xmx256m -XX:TieredStopAtLevel=1");
    if let Some(token) = target.token() {
        mvn = mvn.env("CACHE_TOKEN", token);
    }
    plan.build = vec![mvn];
    plan
}

/// A hit is announced for a whole module, and then its plugins are skipped.
pub(super) fn claim(output: &str) -> Claim {
    let count = |text: &str| output.lines().filter(|line| line.contains(text)).count() as u64;
    let hits = count("Found cached build");
    Claim::of(hits, 1_u64.saturating_sub(hits))
}
