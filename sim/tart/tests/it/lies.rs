//! Where the real one does not tell the truth, and where the host fails it.

use crate::harness::{Host, wait};
use rustix::process::Signal;

#[test]
fn ip_answers_for_a_vm_that_is_long_gone() {
    let host = Host::with_vm();
    host.bad(&["ip", "vm"], "no IP address found, is your VM running?", 1);
    let vm = host.run("vm", &[]);
    let address = host.good(&["ip", "vm", "--wait", "60"]);
    assert!(address.starts_with("127."), "{address}");
    assert_eq!(host.good(&["ip", "vm", "--resolver", "agent"]), address);
    host.good(&["stop", "vm"]);
    vm.end();
    assert_eq!(host.good(&["ip", "vm"]), address, "the lease lives for a day");
    assert_eq!(host.tart(&["ip", "vm", "--resolver", "agent"]).code, Some(1));
    host.switch(|switches| switches.truncated_leases = true);
    assert_eq!(host.tart(&["ip", "vm"]).code, Some(1));
}

/// tart #967: the process that runs the VM opens and closes its own config.json, and with that loses the lock.
#[test]
fn a_vm_that_runs_can_be_listed_as_stopped() {
    let host = Host::new();
    host.switch(|switches| switches.lose_lock = true);
    host.clone("vm");
    let vm = host.run("vm", &[]);
    wait("the lock is lost", || host.state("vm") == "stopped");
    assert_eq!(host.control.running().unwrap(), ["vm"]);
    host.bad(&["stop", "vm"], "VM \"vm\" is not running", 2);
    let locked = "Error Domain=VZErrorDomain Code=2 \"Failed to lock auxiliary storage.\"";
    host.bad(&["run", "vm"], locked, 1);
    vm.signal(Signal::INT);
    assert_eq!(vm.end().0, Some(0));
}

#[test]
fn a_crash_of_the_guest_ends_with_0_too() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    host.control.crash("vm").unwrap();
    let (code, log) = vm.end();
    assert_eq!(code, Some(0));
    let start = "guest has stopped the virtual machine due to error: ";
    assert!(log.starts_with(start), "{log}");
}

/// tart #1217: no VM runs, yet the limit is reached, until the host reboots.
#[test]
fn the_kernel_can_lose_count_until_the_host_reboots() {
    let host = Host::new();
    host.switch(|switches| switches.leak_slot = true);
    host.clone("vm");
    for _ in 0..2 {
        let vm = host.run("vm", &[]);
        host.good(&["stop", "vm"]);
        vm.end();
    }
    host.bad(&["run", "vm"], "The number of VMs exceeds the system limit", 1);
    host.control.reboot().unwrap();
    let vm = host.run("vm", &[]);
    assert_eq!(host.state("vm"), "running");
    drop(vm);
}

#[test]
fn without_an_aqua_session_no_vm_starts() {
    let host = Host::new();
    host.switch(|switches| switches.aqua = Some(false));
    host.clone("vm");
    let said = host.tart(&["run", "vm", "--no-graphics"]);
    assert_eq!(said.code, Some(1));
    for part in ["VZErrorDomain Code=-9", "Failed to create new HostKey"] {
        assert!(said.err.contains(part), "{said:?}");
    }
    assert_eq!(host.state("vm"), "stopped");
}

#[test]
fn a_guest_without_network_has_no_address_however_long_one_waits() {
    let host = Host::new();
    host.switch(|switches| switches.no_network = true);
    host.clone("vm");
    let _vm = host.run("vm", &[]);
    host.bad(&["ip", "vm", "--wait", "1"], "no IP address found", 1);
}

#[test]
fn a_failure_on_request_happens_as_often_as_ordered() {
    let host = Host::new();
    let forced = russet_sim_tart::ForcedFailure {
        text: "Error: tired".into(),
        code: 1,
        times: Some(1),
    };
    host.switch(|switches| drop(switches.fail.insert("list".into(), forced)));
    host.bad(&["list"], "Error: tired", 1);
    assert_eq!(host.good(&["list"]), "\n");
}
