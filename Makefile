# Each target is one line over cargo or xtask; the programs hold the logic.
BUILT = $(or $(CARGO_TARGET_DIR),target)/debug
RUSSET = test -x $(BUILT)/russet || { echo 'nothing is built yet: run make up' >&2; exit 1; }; $(BUILT)/russet
.PHONY: up down status test lint scenarios bite bench generate

up: ; cargo build --quiet --package kura --package russet-capi-provider --package russet-sim-scaleway --package russet-sim-mac --package russet-sim-linux --package russet-tart-kubelet --package russet && $(BUILT)/russet up
down: ; @$(RUSSET) down
status: ; @$(RUSSET) status
test: ; cargo run --quiet --package xtask-artifacts -- restore && cargo run --quiet --package xtask -- ci
lint: ; cargo run --quiet --package xtask -- lint
scenarios: ; cargo test --package russet-scenarios
bite: ; cargo run --quiet --package xtask -- bite
bench: ; cargo run --quiet --release --package russet-bench -- up
generate: ; cargo run --quiet --package xtask -- generate
