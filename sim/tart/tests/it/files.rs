//! Lists, types, sizes, clones and the cache (facts/macos-host.md 6.2, 6.3).

use crate::harness::{Host, IMAGE};
use russet_sim_tart::Image;

#[test]
fn an_empty_list_is_an_empty_line_and_in_json_an_empty_array() {
    let host = Host::new();
    assert_eq!(host.good(&["list"]), "\n");
    assert_eq!(host.good(&["list", "--format", "json"]), "[\n\n]\n");
}

#[test]
fn local_vms_come_first_and_an_image_appears_twice() {
    let host = Host::new();
    host.good(&["pull", IMAGE]);
    host.clone("zebra");
    host.clone("apple");
    let list = host.list();
    let rows = list.as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["Name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names[..2], ["apple", "zebra"]);
    assert_eq!(names[2..].len(), 2);
    assert!(names.contains(&IMAGE.to_owned()));
    assert!(names.iter().any(|name| name.starts_with("ghcr.io/acme/mac@sha256:")));
    assert_eq!(rows[0]["Source"], "local");
    assert_eq!(rows[2]["Source"], "OCI");
    assert_eq!((&rows[0]["Disk"], &rows[0]["Size"]), (&50.into(), &25.into()));
    assert_eq!(rows[0]["Running"], false);
    assert!(rows[0]["Accessed"].as_str().unwrap().ends_with('Z'));
    assert!(rows[0].get("SizeOnDisk").is_none());
    assert_eq!(host.good(&["list", "--source", "local", "--quiet"]), "apple\nzebra\n");
}

#[test]
fn get_has_no_name_and_its_size_is_a_string() {
    let host = Host::with_vm();
    let value = host.get("vm");
    assert_eq!(value["Size"], "25.123");
    assert!(value.get("Name").is_none());
    assert_eq!((&value["OS"], &value["State"]), (&"darwin".into(), &"stopped".into()));
    assert_eq!((&value["CPU"], &value["Memory"]), (&4.into(), &8192.into()));
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_list_to_be_read_has_columns_and_does_not_say_running() {
    let host = Host::with_vm();
    let text = host.good(&["list"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(words(lines[0]), ["Source", "Name", "Disk", "Size", "Accessed", "State"]);
    let row = words(lines[1]);
    assert_eq!(row[..4], ["local", "vm", "50", "25"]);
    assert_eq!(row[5..], ["minutes", "ago", "stopped"]);
    assert_eq!(lines.len(), 4, "the VM, and its image twice: {text}");
    let last = lines[0].find("State").unwrap();
    assert!(lines[1..].iter().all(|line| line[last..] == *"stopped"), "{text}");
    assert_eq!(host.good(&["list", "--format", "text"]).lines().next(), Some(lines[0]));
}

#[test]
fn a_vm_to_be_read_is_one_row_below_its_titles() {
    let host = Host::with_vm();
    let text = host.good(&["get", "vm"]);
    let lines: Vec<_> = text.lines().map(words).collect();
    assert_eq!(
        lines,
        [
            ["OS", "CPU", "Memory", "Disk", "DiskFormat", "Size", "Display", "State"],
            ["darwin", "4", "8192", "50", "raw", "25.123", "1024x768", "stopped"],
        ]
    );
}

#[test]
fn a_disk_that_grew_is_seen_everywhere_and_takes_no_more_room() {
    let host = Host::with_vm();
    host.good(&["set", "vm", "--disk-size", "60"]);
    // The size it has is no smaller one.
    host.good(&["set", "vm", "--disk-size", "60"]);
    host.good(&["clone", "vm", "copy"]);
    for name in ["vm", "copy"] {
        let value = host.get(name);
        assert_eq!((&value["Disk"], &value["Size"]), (&60.into(), &"25.123".into()));
        let list = host.list();
        let row = list.as_array().unwrap().iter().find(|row| row["Name"] == name).unwrap();
        assert_eq!((&row["Disk"], &row["Size"]), (&60.into(), &25.into()));
    }
    let said = host.tart(&["set", "vm", "--disk", "/dev/null"]);
    assert_eq!(said.code, Some(70), "left out, and said so: {said:?}");
}

#[test]
fn a_clone_has_the_serial_of_its_source_and_another_mac_only_if_needed() {
    let host = Host::new();
    host.clone("first");
    host.good(&["clone", "first", "second"]);
    let config = |name: &str| -> serde_json::Value {
        let path = host.control.home().join("vms").join(name).join("config.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(config("first")["ecid"], config("second")["ecid"]);
    assert_ne!(config("first")["macAddress"], config("second")["macAddress"]);
    host.good(&["set", "second", "--random-serial"]);
    assert_ne!(config("first")["ecid"], config("second")["ecid"]);
}

/// The reason why names must be looked up before a clone (tart #822).
#[test]
fn a_clone_overwrites_an_existing_vm_without_a_word() {
    let host = Host::with_vm();
    host.good(&["set", "vm", "--cpu", "8"]);
    assert_eq!(host.good(&["clone", IMAGE, "vm"]), "");
    assert_eq!(host.get("vm")["CPU"], 4);
}

#[test]
fn a_clone_from_the_cache_does_not_notice_that_the_tag_has_moved() {
    let host = Host::new();
    host.good(&["pull", IMAGE]);
    host.push_other();
    host.clone("stale");
    let cpu = |name: &str| host.get(name)["CPU"].as_u64().unwrap();
    assert_eq!(cpu("stale"), 4);
    host.good(&["pull", IMAGE]);
    host.clone("fresh");
    assert_eq!(cpu("fresh"), 6);
}

#[test]
fn moving_a_tag_drops_the_old_image_unless_its_digest_was_asked_for() {
    let host = Host::new();
    let old = host.control.push(IMAGE, &Image::default()).unwrap();
    host.good(&["pull", IMAGE]);
    assert_eq!(host.good(&["fqn", IMAGE]), format!("ghcr.io/acme/mac@{old}\n"));
    host.push_other();
    host.good(&["pull", IMAGE]);
    assert!(!host.good(&["list", "--quiet"]).contains(&old));

    let by_digest = format!("ghcr.io/acme/mac@{old}");
    host.good(&["pull", &by_digest]);
    host.good(&["pull", IMAGE]);
    assert!(host.good(&["list", "--quiet"]).contains(&old));
    host.good(&["delete", &by_digest]);
    assert!(!host.good(&["list", "--quiet"]).contains(&old));
}

#[test]
fn delete_stops_at_the_first_error() {
    let host = Host::new();
    host.clone("a");
    host.clone("b");
    let missing = "the specified VM \"ghost\" does not exist";
    host.bad(&["delete", "a", "ghost", "b"], missing, 2);
    assert_eq!(host.good(&["list", "--source", "local", "--quiet"]), "b\n");
}

#[test]
fn rename_refuses_a_name_that_is_taken() {
    let host = Host::new();
    host.clone("a");
    host.clone("b");
    assert_eq!(host.tart(&["rename", "a", "b"]).code, Some(64));
    host.good(&["rename", "a", "c"]);
    assert_eq!(host.good(&["list", "--source", "local", "--quiet"]), "b\nc\n");
}
