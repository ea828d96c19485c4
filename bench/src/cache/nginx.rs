//! The yardstick: nginx as a file server that takes uploads, tuned as one would, without logs, hashes or syncs.

use super::core::Cores;
use super::ending;
use super::system::{Paths, Process, System, free_port, wait};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) system: System,
    process: Process,
    dir: PathBuf,
}

const MISSING: &str = "nginx is the yardstick and is not installed; `apt-get install nginx-light` brings it (stop the service \
    it may start, we run our own), or name one with --nginx";

fn find(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        ensure!(given.is_file(), "{} is not there", given.display());
        return Ok(given.to_owned());
    }
    // Debian puts it where the path of an ordinary user does not lead.
    [
        "/usr/sbin/nginx",
        "/usr/local/sbin/nginx",
        "/usr/bin/nginx",
        "/usr/local/bin/nginx",
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|path| path.is_file())
    .context(MISSING)
}

impl Nginx {
    pub(crate) fn start(program: Option<&Path>, dir: &Path, cores: Cores) -> Result<Self> {
        let program = find(program)?;
        let dir = dir.join("nginx");
        for folder in ["data", "temp"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let port = free_port()?;
        let root = rustix::process::geteuid().is_root();
        fs::write(dir.join("nginx.conf"), config(&dir, port, root))?;
        let log = fs::File::create(dir.join("start.log"))?;
        let child = cores.on_server(|| {
            ending::following(&program)?
                .arg("-p")
                .arg(&dir)
                .arg("-c")
                .arg(dir.join("nginx.conf"))
                .arg("-e")
                .arg(dir.join("error.log"))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .with_context(|| format!("failed to start {}", program.display()))
        })?;
        let mut process = Process::new(child, "nginx");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let up = wait(Duration::from_secs(10), || {
            process.check().context(read(&dir.join("start.log")))?;
            Ok(TcpStream::connect(address).ok())
        })?;
        ensure!(up.is_some(), "nginx does not listen: {}", read(&dir.join("error.log")));
        Ok(Self {
            system: System {
                name: "nginx".into(),
                version: version(&program),
                address,
                paths: Paths::Folders,
                token: None,
                pid: process.child.id(),
            },
            process,
            dir,
        })
    }

    /// Removes what was stored in a space.
    pub(crate) fn clear(&self, space: &str) -> Result<()> {
        match fs::remove_dir_all(self.dir.join("data").join(space)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        self.process.stop(Duration::from_secs(20))
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// `nginx version: nginx/1.22.1` goes to standard error.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("-v").output();
    output
        .ok()
        .and_then(|output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(text.trim().rsplit_once('/')?.1.to_owned())
        })
        .unwrap_or_else(|| "version unknown".to_owned())
}

fn config(dir: &Path, port: u16, root: bool) -> String {
    let dir = dir.display();
    // As root the worker would become another user, who cannot write into our folder.
    let user = if root { "user root;\n" } else { "" };
    format!(
        "{user}daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  log_not_found off;
  sendfile on;
  tcp_nopush on;
  open_file_cache max=15000;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_max_body_size 0;
  client_body_temp_path {dir}/temp/body;
  proxy_temp_path {dir}/temp/proxy;
  fastcgi_temp_path {dir}/temp/fastcgi;
  uwsgi_temp_path {dir}/temp/uwsgi;
  scgi_temp_path {dir}/temp/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {dir}/data;
    location / {{ dav_methods PUT; create_full_put_path on; }}
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_the_one_the_figures_name() {
        insta::assert_snapshot!(config(Path::new("/bench/nginx"), 8080, true));
    }

    #[test]
    fn a_missing_nginx_says_what_to_do() {
        let error = find(Some(Path::new("/no/such/nginx"))).unwrap_err();
        assert!(error.to_string().contains("/no/such/nginx is not there"));
        assert!(MISSING.contains("apt-get install") && MISSING.contains("--nginx"));
    }
}
