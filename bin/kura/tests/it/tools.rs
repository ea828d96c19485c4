//! What the tests of the tools' protocols share.

use crate::node::{Node, Options};
use aws_lc_rs::digest;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

pub(crate) const WRITER: &str = "0123456789abcdef-writer";
pub(crate) const READER: &str = "0123456789abcdef-reader";
pub(crate) const STRANGER: &str = "0123456789abcdef-stranger";

/// A node of the account `acme`: one token may write the project `ios` (and, for Nx, the account), one may read them, and one
/// may write another project only.
pub(crate) fn guarded() -> (Node, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let tokens = format!(
        "[[token]]\nname = \"writer\"\nsecret = \"{WRITER}\"\nwrite = [\"acme\", \"acme/ios\", \"acme/default\"]\n\
         [[token]]\nname = \"reader\"\nsecret = \"{READER}\"\nread = [\"acme\", \"acme/ios\", \"acme/default\"]\n\
         [[token]]\nname = \"stranger\"\nsecret = \"{STRANGER}\"\nwrite = [\"acme/android\"]\n"
    );
    std::fs::write(&file, tokens).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let node = Node::start_with(&Options {
        args: &[
            "--tenant-id",
            "acme",
            "--bind-address",
            "127.0.0.1",
            "--auth-tokens-file",
            file.to_str().unwrap(),
        ],
        env: &[],
    });
    (node, dir)
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// An entry of a tool: where it is, what it is, and the fields its write needs.
pub(crate) struct Entry {
    pub(crate) tool: &'static str,
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
    pub(crate) fields: Vec<String>,
}

/// One entry of each tool in the project. `salt` makes entries of different tests differ.
pub(crate) fn entries(project: &str, salt: &str) -> Vec<Entry> {
    let body = format!("what the tool made, {salt}").into_bytes();
    let hash = sha256(&body);
    let entry = |tool, target: String| Entry {
        tool,
        target,
        body: body.clone(),
        fields: Vec::new(),
    };
    let mut go = entry("go", format!("/go/{project}/{}", sha256(salt.as_bytes())));
    go.fields.push(format!("x-kura-output-id: {hash}"));
    let mut action = entry("bazel", format!("/bazel/{project}/ac/{}", sha256(salt.as_bytes())));
    // An exit code, which is an action result.
    action.body = vec![4 << 3, 1];
    vec![
        entry("gradle", format!("/gradle/{project}/{hash}")),
        entry("bazel", format!("/bazel/{project}/cas/{hash}")),
        action,
        entry("turborepo", format!("/v8/artifacts/{}?slug={project}", &hash[..16])),
        entry("ccache", format!("/ccache/{project}/{}/{}", &hash[..2], &hash[2..40])),
        entry("sccache", format!("/sccache/{project}/pre/a/b/c/{hash}")),
        entry(
            "maven",
            format!("/maven/{project}/v1.2/com.acme/app/{}/app.jar", &hash[..16]),
        ),
        go,
        entry("generic", format!("/generic/{project}/some/where/{hash}")),
    ]
}

impl Entry {
    /// The fields of its write, as lines of a header.
    pub(crate) fn lines(&self) -> String {
        self.fields
            .iter()
            .fold(String::new(), |text, field| text + field + "\r\n")
    }

    pub(crate) fn put(&self, node: &Node, token: &str) -> crate::wire::Response {
        let authorization = bearer(token);
        let mut fields: Vec<&str> = self.fields.iter().map(String::as_str).collect();
        fields.push(&authorization);
        node.client().send("PUT", &self.target, &fields, &self.body)
    }

    pub(crate) fn get(&self, node: &Node, token: &str) -> crate::wire::Response {
        node.client().send("GET", &self.target, &[&bearer(token)], b"")
    }
}

/// The value of a metric with those labels; 0 if it never counted.
pub(crate) fn metric(node: &Node, line: &str) -> u64 {
    let text = node.send("GET", "/metrics", b"");
    text.text()
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
        .unwrap_or(0)
}

pub(crate) fn count(node: &Node, tool: &str, project: &str, result: &str) -> u64 {
    let line = format!("kura_tool_requests_total{{tool=\"{tool}\",project=\"{project}\",result=\"{result}\"}}");
    metric(node, &line)
}
