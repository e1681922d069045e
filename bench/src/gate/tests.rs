use serde_json::json;

use super::*;

/// A run like the report's: the site of pooled slices, and the rest.
fn row(site: f64, rest: f64, rate: f64) -> Run {
    let Value::Object(row) = json!({
        "workload": "plain-send",
        "transactions_per_second": rate,
        "alloc_bytes_per_tx": site + rest,
        "alloc_by_site": {"slices": site, "batches": rest * 0.75, "keys": rest * 0.25},
        "retained_bytes": 1000,
        "ownership_violations": 0,
        "commit_p50_us": 1e6 / rate,
        "commit_p99_us": 5e6 / rate,
    }) else {
        panic!("an object");
    };
    Run {
        file: PathBuf::from("run.json"),
        row,
    }
}

fn runs(site: f64, rest: f64, rates: &[f64]) -> Vec<Run> {
    rates.iter().map(|rate| row(site, rest, *rate)).collect()
}

const STEADY: [f64; 4] = [500.0, 501.0, 499.5, 500.5];

fn verdict(base: &[Run], candidate: &[Run]) -> (Verdict, Vec<GateRow>) {
    let rows = judge(base, candidate, Some("slices")).expect("judges");
    (Verdict::of(&rows), rows)
}

fn gate<'a>(rows: &'a [GateRow], name: &str) -> &'a GateRow {
    rows.iter().find(|row| row.gate == name).expect("a gate")
}

#[test]
fn less_at_the_site_and_in_all_is_accepted() {
    let base = runs(100.0, 400.0, &STEADY);
    let (verdict, rows) = verdict(&base, &runs(10.0, 400.0, &STEADY));
    assert_eq!(verdict, Verdict::Accept);
    let names: Vec<_> = rows.iter().map(|row| row.gate.as_str()).collect();
    let wanted = [
        "site slices",
        "next largest site batches",
        "total",
        "throughput",
        "commit p50",
        "commit p99",
        "retention",
        "ownership checks",
    ];
    assert_eq!(names, wanted);
    assert_eq!(gate(&rows, "site slices").target, 90.0);
}

/// The field's case: the site fell by 11 %, the total rose by 6.76 %.
#[test]
fn a_site_that_falls_while_the_total_rises_is_rejected() {
    let base = runs(100.0, 400.0, &STEADY);
    let (verdict, rows) = verdict(&base, &runs(89.0, 444.8, &STEADY));
    assert_eq!(verdict, Verdict::Reject);
    assert_eq!(gate(&rows, "site slices").pass, Some(true));
    let total = gate(&rows, "total");
    assert_eq!(total.pass, Some(false));
    assert!(total.note.contains("moved"), "{}", total.note);
    assert_eq!(gate(&rows, "next largest site batches").pass, Some(false));
}

#[test]
fn counts_decide_with_one_run_a_side_and_times_do_not() {
    let base = runs(100.0, 400.0, &[500.0]);
    let (open, rows) = verdict(&base, &runs(10.0, 400.0, &[500.0]));
    assert_eq!(open, Verdict::Inconclusive);
    assert_eq!(gate(&rows, "total").pass, Some(true));
    assert_eq!(gate(&rows, "throughput").runs_needed, Some(8));
    let (rejected, _) = verdict(&base, &runs(95.0, 400.0, &[500.0]));
    assert_eq!(rejected, Verdict::Reject, "the site fell by too little");
}

#[test]
fn a_slower_candidate_is_rejected() {
    let base = runs(100.0, 400.0, &STEADY);
    let slow = STEADY.map(|rate| rate * 0.9);
    let (verdict, rows) = verdict(&base, &runs(10.0, 400.0, &slow));
    assert_eq!(verdict, Verdict::Reject);
    assert_eq!(gate(&rows, "throughput").pass, Some(false));
}

#[test]
fn ownership_that_was_not_checked_does_not_pass() {
    let base = runs(100.0, 400.0, &STEADY);
    let mut candidate = runs(10.0, 400.0, &STEADY);
    candidate[2].row.remove("ownership_violations");
    assert_eq!(verdict(&base, &candidate).0, Verdict::Inconclusive);
    candidate[2]
        .row
        .insert("ownership_violations".into(), json!(1));
    assert_eq!(verdict(&base, &candidate).0, Verdict::Reject);
}

#[test]
fn counts_that_differ_between_runs_of_a_side_do_not_tell() {
    let mut base = runs(100.0, 400.0, &STEADY);
    base[1]
        .row
        .insert("alloc_bytes_per_tx".into(), json!(480.0));
    let (verdict, rows) = verdict(&base, &runs(89.0, 400.0, &STEADY));
    assert_eq!(verdict, Verdict::Inconclusive);
    assert_eq!(gate(&rows, "total").pass, None);
}

#[test]
fn files_are_read_and_what_they_lack_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path
    };
    let whole = |rows: Vec<Map<String, Value>>| json!({"tool": "t", "rows": rows}).to_string();
    let good = file("a.json", &whole(vec![row(100.0, 400.0, 500.0).row]));
    let mut other = row(100.0, 400.0, 500.0).row;
    other.insert("workload".into(), json!("small-multisend"));
    let two = file(
        "b.json",
        &whole(vec![row(90.0, 400.0, 500.0).row, other.clone()]),
    );
    let options = |base: &PathBuf, candidate: &PathBuf, workload: Option<&str>| GateOptions {
        base: vec![base.clone()],
        candidate: vec![candidate.clone()],
        site: None,
        workload: workload.map(str::to_owned),
    };
    assert_eq!(
        run(&options(&good, &two, Some("plain-send")))
            .expect("reads")
            .len(),
        6
    );
    let refused = |base, candidate, workload| {
        let error = run(&options(base, candidate, workload)).expect_err("refuses");
        format!("{error:#}")
    };
    assert!(refused(&good, &two, None).contains("name a workload"));
    assert!(refused(&good, &good, Some("else")).contains("no row"));
    let another = file("c.json", &whole(vec![other]));
    assert!(refused(&good, &another, None).contains("different workloads"));
    let mut lacking = row(100.0, 400.0, 500.0).row;
    lacking.remove("retained_bytes");
    let lacking = file("d.json", &whole(vec![lacking]));
    let error = refused(&good, &lacking, None);
    assert!(
        error.contains("d.json") && error.contains("retained_bytes"),
        "{error}"
    );
    let broken = file("e.json", "{");
    assert!(refused(&good, &broken, None).contains("e.json"));
    assert!(refused(&good, &directory.path().join("f.json"), None).contains("f.json"));
}
