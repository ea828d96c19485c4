//! VMs that run: their end, their shares, their limit, and what runs in them (facts/macos-host.md 6.3).

use crate::harness::{Host, IMAGE, wait, write};
use russet_sim_tart::{Image, Os};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};

const STOPPED: &str = "guest has stopped the virtual machine\n";

#[test]
fn a_guest_that_shuts_down_ends_the_run_with_0() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    assert_eq!(host.state("vm"), "running");
    host.bad(&["run", "vm"], "VM \"vm\" is already running!", 2);
    host.bad(&["delete", "vm"], "VM \"vm\" is running", 1);
    vm.exec(&["sudo", "shutdown", "-h", "now"]);
    assert_eq!(vm.end(), (Some(0), STOPPED.to_owned()));
    assert_eq!(host.state("vm"), "stopped");
    host.good(&["delete", "vm"]);
}

/// The agent is started by the login of the guest, so a guest has an address before anything can be run in it.
#[test]
fn whoever_calls_before_the_guest_has_logged_in_waits() {
    let host = Host::new();
    host.switch(|switches| switches.agent_ms = 1_500);
    host.clone("vm");
    let begun = std::time::Instant::now();
    let vm = host.begin("vm", &[]);
    wait("an address", || host.tart(&["ip", "vm"]).code == Some(0));
    let said = vm.exec(&["echo", "hello"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"));
    assert!(begun.elapsed() >= std::time::Duration::from_millis(1_500));
}

#[test]
fn an_interrupt_stops_hard_and_sigusr2_asks_the_guest() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    vm.signal(Signal::INT);
    assert_eq!(vm.end(), (Some(0), "Stopping VM...\n".to_owned()));

    let vm = host.run("vm", &[]);
    vm.signal(Signal::USR2);
    assert_eq!(vm.end(), (Some(0), STOPPED.to_owned()));

    // SIGTERM is not handled: the process dies of it, and the guest with it.
    let vm = host.run("vm", &[]);
    vm.signal(Signal::TERM);
    assert_eq!(vm.end().0, None);
    wait("stopped", || host.state("vm") == "stopped");
}

#[test]
fn stop_interrupts_waits_and_then_kills() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    host.good(&["stop", "vm"]);
    assert_eq!(vm.end().1, "Stopping VM...\n");

    host.switch(|switches| switches.deaf_run = true);
    let vm = host.run("vm", &[]);
    host.good(&["stop", "vm", "--timeout", "1"]);
    assert_eq!(vm.end().0, None, "killed");
}

#[test]
fn exec_passes_output_input_and_exit_code() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    let said = vm.exec(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("out\n", "err\n"));
    assert_eq!(said.code, Some(7));
    assert_eq!(vm.exec(&["sh", "-c", "kill -9 $$"]).code, Some(255));
    assert_eq!(vm.exec(&["/no/such/program"]).code, Some(1));

    let said = host.feed(&["exec", "-i", "vm", "tr", "a-z", "A-Z"], b"loud");
    assert_eq!(said.out, "LOUD");
    // Without -i nobody reads.
    assert_eq!(vm.exec(&["cat"]).out, "");
}

#[test]
fn a_guest_has_an_nc_that_looks_and_carries() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    assert_eq!(vm.exec(&["nc", "-z", "127.0.0.1", &port]).code, Some(0));
    drop(listener.accept().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = String::new();
        // The end of input arrives, and what is answered after it, too.
        stream.read_to_string(&mut heard).unwrap();
        write!(stream, "hello {heard}").unwrap();
    });
    let said = host.feed(&["exec", "-i", "vm", "nc", "127.0.0.1", &port], b"you");
    assert_eq!((said.out.as_str(), said.code), ("hello you", Some(0)));
    answer.join().unwrap();
    let deaf = vm.exec(&["nc", "-z", "127.0.0.1", &port]);
    assert_eq!(deaf.code, Some(1), "the port is closed");
}

#[test]
fn a_terminal_in_the_guest_is_a_terminal() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    let script = "test -t 0 && test -t 1 && stty size && tty";
    let said = host.tart(&["exec", "-t", &vm.name, "sh", "-c", script]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("24 80\r\n/dev/pts/"), "{said:?}");
}

#[test]
fn exec_without_an_agent_fails_and_says_so() {
    let host = Host::new();
    host.push(IMAGE, |image| image.agent = false);
    host.clone("vm");
    let vm = host.begin("vm", &[]);
    wait("running", || host.state("vm") == "running");
    let said = vm.exec(&["true"]);
    assert_eq!(said.code, Some(1));
    let start = "Failed to connect to the VM using its control socket: ";
    assert!(said.err.starts_with(start), "{said:?}");
    assert!(said.err.ends_with(", is the Tart Guest Agent running?\n"), "{said:?}");
}

#[test]
fn shares_are_where_macos_mounts_them_and_show_what_changes_later() {
    let host = Host::with_vm();
    write(&host.path("env/tuist.env"), "A=1\n");
    std::fs::create_dir_all(host.path("status")).unwrap();
    let env = format!("env:{}:ro", host.path("env").display());
    let status = format!("status:{}", host.path("status").display());
    let vm = host.run("vm", &["--dir", &env, "--dir", &status]);
    assert_eq!(vm.exec(&["cat", "/Volumes/My Shared Files/env/tuist.env"]).out, "A=1\n");
    write(&host.path("env/sa_token"), "fresh");
    assert_eq!(vm.exec(&["cat", "/Volumes/My Shared Files/env/sa_token"]).out, "fresh");
    assert_ne!(vm.exec(&["touch", "/Volumes/My Shared Files/env/x"]).code, Some(0));
    vm.exec(&["sh", "-c", "echo 3 > '/Volumes/My Shared Files/status/runner-rc'"]);
    assert_eq!(std::fs::read_to_string(host.path("status/runner-rc")).unwrap(), "3\n");
}

#[test]
fn the_boot_script_runs_and_the_disk_outlives_a_stop() {
    let host = Host::new();
    let boot = "echo boot >> /Users/admin/boots; [ $(wc -l < /Users/admin/boots) -lt 2 ] || shutdown -h now";
    host.push(IMAGE, |image| image.boot = boot.into());
    host.clone("vm");
    let vm = host.run("vm", &[]);
    wait("booted", || vm.exec(&["cat", "/Users/admin/boots"]).out == "boot\n");
    host.good(&["stop", "vm"]);
    assert_eq!(vm.end().1, "Stopping VM...\n");
    // The second boot finds what the first one wrote, and shuts down.
    assert_eq!(host.begin("vm", &[]).end().1, STOPPED);
    let boots = host.control.guest_path("vm", "/Users/admin/boots");
    assert_eq!(std::fs::read_to_string(boots).unwrap(), "boot\nboot\n");
}

#[test]
fn nothing_of_a_guest_outlives_it() {
    let host = Host::with_vm();
    let vm = host.run("vm", &[]);
    let mark = format!("sleep {}", 100_000 + std::process::id());
    let detached = format!("setsid {mark} >/dev/null 2>&1 &");
    // The guest agent comes with the login, later than the VM.
    wait("the process is started", || {
        vm.exec(&["sh", "-c", &detached]).code == Some(0)
    });
    let alive = || {
        let list = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
        String::from_utf8_lossy(&list.stdout).lines().any(|line| line == mark)
    };
    wait("the process runs", alive);
    vm.signal(Signal::KILL);
    wait("the process is gone", || !alive());
}

#[test]
fn a_third_macos_vm_is_refused_and_linux_does_not_count() {
    let host = Host::new();
    for name in ["a", "b", "c"] {
        host.clone(name);
    }
    let _a = host.run("a", &[]);
    let b = host.run("b", &[]);
    let refusal = "The number of VMs exceeds the system limit (other running VMs: a, b)";
    host.bad(&["run", "c"], refusal, 1);
    let linux = Image {
        os: Os::Linux,
        ..Image::default()
    };
    host.control.create("linux", &linux).unwrap();
    let _linux = host.run("linux", &[]);
    host.good(&["stop", "b"]);
    b.end();
    let _c = host.run("c", &[]);
    assert_eq!(host.state("c"), "running");
}

#[test]
fn a_vnc_server_is_announced_where_no_viewer_can_be_opened() {
    let host = Host::with_vm();
    let vm = host.begin("vm", &["--vnc-experimental"]);
    wait("announced", || vm.log().contains('\n'));
    let line = vm.log();
    let port: u16 = line.trim_end().rsplit(':').next().unwrap().parse().unwrap();
    assert!(line.starts_with("VNC server is running at vnc://:"), "{line}");
    let mut greeting = [0; 12];
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Read::read_exact(&mut stream, &mut greeting).unwrap();
    assert_eq!(&greeting, b"RFB 003.008\n");
}

#[test]
fn a_suspendable_vm_leaves_a_saved_state_that_stop_deletes() {
    let host = Host::with_vm();
    let vm = host.run("vm", &["--suspendable"]);
    host.good(&["suspend", "vm"]);
    assert_eq!(vm.end().0, Some(0));
    assert_eq!(host.state("vm"), "suspended");
    host.good(&["stop", "vm"]);
    assert_eq!(host.state("vm"), "stopped");
}
