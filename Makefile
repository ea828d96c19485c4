# Each target is one line over cargo or xtask; the programs hold the logic.
.PHONY: up down status test lint e2e bench generate

up: ; cargo build --quiet --package kura --package russet-capi-provider --package russet-sim-scaleway --package russet-sim-mac --package russet-sim-linux --package russet-tart-kubelet && cargo run --quiet --package russet -- up
down: ; cargo run --quiet --package russet -- down
status: ; cargo run --quiet --package russet -- status
test: ; cargo run --quiet --package xtask -- ci
lint: ; cargo run --quiet --package xtask -- lint
e2e: ; cargo test --package russet-e2e
bench: ; cargo run --quiet --release --package russet-bench -- up
generate: ; cargo run --quiet --package xtask -- generate
