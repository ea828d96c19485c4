//! Compiles the protocol definitions without `protoc`.

use prost::Message as _;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "build/bazel/remote/execution/v2/remote_execution.proto",
        "google/bytestream/bytestream.proto",
        "grpc/health/v1/health.proto",
    ];
    println!("cargo:rerun-if-changed=proto");
    let set = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not say where to write")?);
    std::fs::write(out.join("descriptors.bin"), set.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .compile_fds(set)?;
    Ok(())
}
