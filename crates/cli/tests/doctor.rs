//! `overspill doctor` and the help: what a newcomer reads first.

mod support;

use support::{overspill, stderr, stdout};

#[test]
fn every_check_has_a_verdict_and_every_failure_a_fix() {
    let output = overspill().args(["doctor", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 10);
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(["ok", "warn", "fail"].contains(&status), "{check}");
        assert!(!check["detail"].as_str().unwrap().is_empty());
        assert_eq!(check["fix"].is_string(), status != "ok", "{check}");
    }
    let fails = checks.iter().any(|check| check["status"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(fails)));
    assert_eq!(report["ok"], !fails);
}

/// *The story:* the trial asked for a descriptor by a number and a token, and found it nowhere.
#[test]
fn a_child_reaches_the_shared_memory() {
    let output = overspill().arg("doctor").output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("ok    shared memory"), "{text}");
}

#[test]
fn a_failure_is_shown_with_its_fix() {
    let output = overspill().args(["doctor", "--swap", "/dev/shm"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("fail  swap directory") && text.contains("mend: --swap DIR"), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn help_teaches_by_examples() {
    for (command, example) in [
        ("run", "overspill run --ram 1G -- python3"),
        ("doctor", "overspill doctor"),
        ("compare", "sudo overspill compare"),
        ("bench", "sudo overspill bench seq"),
    ] {
        let output = overspill().args([command, "--help"]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains(example), "{}", stdout(&output));
    }
    let output = overspill().arg("--version").output().unwrap();
    assert_eq!(stdout(&output), format!("overspill {}\n", env!("CARGO_PKG_VERSION")));
    let output = overspill().args(["completions", "bash"]).output().unwrap();
    assert!(stdout(&output).contains("_overspill"), "{}", stderr(&output));
}
