//! Variables: the settings they make, and the messages that refuse others.

use super::*;
use crate::Algorithm;
use crate::test_support::usage;

fn with(vars: &[(&str, &str)]) -> Result<Config, Error> {
    Config::from_vars(vars.iter().map(|(name, value)| (name.to_string(), value.to_string())))
}

#[test]
fn nothing_set_is_the_default() {
    let config = with(&[("PATH", "/bin"), ("EARLY", "x"), ("EARLYBIRD", "x")]).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!((config.order, config.wait, config.timeout), (FoldOrder::Arrival, WaitPreset::Balanced, None));
}

#[test]
fn every_variable_reaches_its_field() {
    let config = with(&[
        ("EARLYBIRD_RANK", "read elsewhere"),
        ("EARLYBIRD_ALGORITHM", "chain"),
        ("EARLYBIRD_ALLREDUCE", "flat:0-100"),
        ("EARLYBIRD_RANKS_PER_NODE", "1"),
        ("EARLYBIRD_EXCHANGE", "rsg"),
        ("EARLYBIRD_ENDPOINTS", "2"),
        ("EARLYBIRD_ORDER", "rank"),
        ("EARLYBIRD_WAIT", "power"),
        ("EARLYBIRD_TIMEOUT", "2.5"),
        ("EARLYBIRD_ARENA_MAX", "3Mi"),
        ("EARLYBIRD_DIR", "/run/user/1"),
        ("EARLYBIRD_VERBOSE", "on"),
        ("EARLYBIRD_INTERPOSE", "profile"),
        ("EARLYBIRD_TRACE", "runs/first"),
        ("EARLYBIRD_TRACE_SIZE", "1Mi"),
    ])
    .unwrap();
    let expected = Config {
        algorithm: Choice::Node(Algorithm::Chain),
        tables: Tables::default().with(Collective::AllReduce, "flat:0-100".parse().unwrap()),
        tuning: Tuning::default(),
        ranks_per_node: Some("1".parse().unwrap()),
        exchange: Some(Choice::Plan("rsg")),
        endpoints: Some(2),
        order: FoldOrder::Rank,
        wait: WaitPreset::Power,
        timeout: Some(Duration::from_millis(2500)),
        arena_max_bytes: Some(3 << 20),
        dir: Some("/run/user/1".into()),
        verbose: true,
        interpose: Interpose::Profile,
        carriers: Carriers::default(),
        join_timeout: None,
        trace: Some("runs/first".into()),
        trace_bytes: Some(1 << 20),
        traced_process: None,
        shares_cpus: false,
    };
    assert_eq!(config, expected);
    assert_eq!(with(&[("EARLYBIRD_TIMEOUT", "none")]).unwrap().timeout, None);
    assert_eq!(with(&[("EARLYBIRD_TIMEOUT", "10s")]).unwrap().timeout, Some(Duration::from_secs(10)));
    assert!(!with(&[("EARLYBIRD_VERBOSE", "0")]).unwrap().verbose);
    assert!(with(&[("EARLYBIRD_VERBOSE", "true")]).unwrap().verbose);
}

#[test]
fn an_unknown_variable_is_refused_with_the_list() {
    for name in ["EARLYBIRD_", "EARLYBIRD_ALGORITM", "EARLYBIRD_order", "EARLYBIRD_ORDER "] {
        let message = usage(with(&[(name, "arrival")]));
        assert!(
            message.contains(name)
                && message.contains("EARLYBIRD_ALGORITHM, ")
                && message.contains("EARLYBIRD_REDUCE_SCATTER"),
            "{message}"
        );
    }
}

#[test]
fn an_unknown_value_is_refused_with_its_variable_and_the_valid_ones() {
    for (name, value, valid) in [
        ("EARLYBIRD_ALGORITHM", "fast", "static-leader-early"),
        ("EARLYBIRD_ALLREDUCE", "fast:0-", "static-leader-early"),
        ("EARLYBIRD_BROADCAST", "chain:0-9,leader:10-", "use one of: auto, flat, chain"),
        ("EARLYBIRD_ALLGATHER", "chain:0-", "allgather is not carried out by chain"),
        ("EARLYBIRD_REDUCE", "leader:0-", "static-leader-early"),
        ("EARLYBIRD_ALGORITHM", "plan:rings", "plan:ring, plan:butterfly"),
        ("EARLYBIRD_EXCHANGE", "plan:ring", "plan:ring, plan:butterfly"),
        ("EARLYBIRD_RANKS_PER_NODE", "0", "5,3,1"),
        ("EARLYBIRD_ENDPOINTS", "0", "ranks from 1 nor auto"),
        ("EARLYBIRD_ORDER", "Rank", "arrival, rank"),
        ("EARLYBIRD_WAIT", "busy", "latency, balanced, power"),
        ("EARLYBIRD_ARENA_MAX", "1KB", "Ki, Mi or Gi"),
        ("EARLYBIRD_DIR", "relative/path", "absolute"),
        ("EARLYBIRD_DIR", "", "absolute"),
        ("EARLYBIRD_VERBOSE", "maybe", "on, off, true, false"),
        ("EARLYBIRD_REDUCE", "plan:binomial:0-", "not carried out by plan:binomial"),
        ("EARLYBIRD_INTERPOSE", "1", "on, off, profile"),
        ("EARLYBIRD_TRACE", "runs/", "name of a file"),
        ("EARLYBIRD_TRACE_SIZE", "1Mi", "without EARLYBIRD_TRACE"),
    ] {
        let message = usage(with(&[(name, value)]));
        assert!(message.starts_with(name) && message.contains(valid), "{message}");
    }
    for value in ["", "0", "0.0", "-1", "+1", "nan", "inf", "1e3", "1h", "0s", "1.2.3", ".", "99999999999999999999"] {
        let message = usage(with(&[("EARLYBIRD_TIMEOUT", value)]));
        assert!(message.contains("EARLYBIRD_TIMEOUT") && message.contains("10s, 500ms"), "{message}");
    }
}

#[test]
fn the_fault_variable_is_known_to_builds_with_faults_only() {
    assert_eq!(with(&[("EARLYBIRD_FAULT", "x")]).is_ok(), cfg!(feature = "fault"));
}
