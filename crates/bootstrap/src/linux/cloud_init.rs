//! The program as user data.

use russet_telemetry::Secret;
use serde_json::json;

use super::{Rendered, SCRIPT};

/// The `#cloud-config` that writes the program and runs it under bash: `runcmd` lines alone would run under sh.
pub fn cloud_init(rendered: &Rendered) -> Secret<String> {
    rendered.script.map(|script| {
        let config = json!({
            "write_files": [{ "path": SCRIPT, "owner": "root:root", "permissions": "0700", "content": script }],
            "runcmd": [["bash", SCRIPT]],
        });
        // JSON is YAML too: should the printer ever refuse, the text is merely less pretty.
        let body = serde_yaml_ng::to_string(&config).unwrap_or_else(|_| config.to_string());
        format!("#cloud-config\n{body}")
    })
}
