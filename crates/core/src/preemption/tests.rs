use std::io::{self, Write};

use super::*;
use crate::placement::Draw;

fn model(spec: &str) -> Model {
    Model::load(&spec.parse().unwrap(), |file| Err(format!("{file} is not to be read"))).unwrap()
}

fn samples(model: &Model, seed: u64, count: usize) -> Vec<Millis> {
    let mut draw = Draw::new(seed);
    (0..count).map(|_| model.sample(draw.next())).collect()
}

const fn hours(hours: u64) -> Millis {
    Millis(hours * 3_600_000)
}

fn near(one: f64, other: f64, within: f64) -> bool {
    (one - other).abs() <= within
}

#[test]
fn formula_has_the_papers_mass_before_the_limit() {
    let Shape::Bathtub(simulator) = *model("bathtub:simulator").shape() else { unreachable!() };
    assert!(near(simulator.formula(24.0), 0.83, 0.005), "{}", simulator.formula(24.0));
    let model = model("bathtub:simulator");
    assert!(near(model.cdf(Millis(hours(24).0 - 1)), 0.83, 0.005));
    assert_eq!(model.cdf(hours(24)), 1.0);
    assert_eq!(model.expected_life(hours(24)), Millis(0));
    assert_eq!(model.hazard(hours(25)), f64::INFINITY);
}

#[test]
fn samples_follow_every_formula() {
    let specs = [
        "bathtub:typical",
        "bathtub:n1-highcpu-16",
        "bathtub:n1-highcpu-32",
        "bathtub:n1-highcpu-32-us-central1-c",
        "bathtub:a=0.3,tau1=0.1,tau2=1,b=12,limit=12",
        "exponential:mean=12h",
        "exponential:mean=90s",
        "bathtub:simulator,speed=720",
    ];
    for spec in specs {
        let model = model(spec);
        let drawn = samples(&model, 1, 20_000);
        assert_eq!(drawn, samples(&model, 1, 20_000), "{spec}: the same seed, the same lives");
        assert_ne!(drawn, samples(&model, 2, 20_000));
        // The distance of n samples exceeds 1.63/sqrt(n) once in a hundred (Kolmogorov).
        let distance = model.distance(&drawn);
        assert!(distance < 1.63 / 20_000_f64.sqrt(), "{spec}: {distance}");
        let mean = drawn.iter().map(|life| life.0).sum::<u64>() as f64 / 20_000.0;
        let expected = model.expected_life(Millis(0)).0 as f64;
        assert!(near(mean / expected, 1.0, 0.03), "{spec}: {mean} drawn, {expected} expected");
    }
}

#[test]
fn expected_life_is_the_mean_of_what_is_left() {
    for spec in ["bathtub:typical", "exponential:mean=5h", "bathtub:n1-highcpu-32"] {
        let model = model(spec);
        let drawn = samples(&model, 3, 100_000);
        for age in [hours(1), hours(6), hours(18)] {
            let left: Vec<u64> =
                drawn.iter().filter(|life| **life > age).map(|life| life.0 - age.0).collect();
            let mean = left.iter().sum::<u64>() as f64 / left.len() as f64;
            let expected = model.expected_life(age).0 as f64;
            assert!(near(mean / expected, 1.0, 0.05), "{spec} {age:?}: {mean} and {expected}");
        }
    }
}

#[test]
fn bathtub_is_risky_when_young_and_before_the_limit() {
    let model = model("bathtub:typical");
    let at = |age: u64| model.hazard(hours(age));
    assert!(at(0) > 10.0 * at(10), "{} and {}", at(0), at(10));
    assert!(at(23) > 10.0 * at(10));
    assert!(model.expected_life(hours(4)) > model.expected_life(Millis(0)));
    assert!(model.expected_life(hours(20)) < model.expected_life(hours(4)));
    assert!(model.risk(hours(23), hours(1)) > 0.999);
    let minute = model.risk(hours(1), Millis(60_000)) * 60.0;
    assert!(near(minute / at(1), 1.0, 0.02), "{minute} an hour by the next minute, {}", at(1));
}

#[test]
fn exponential_never_ages() {
    let model = model("exponential:mean=12h");
    for age in [0, 7, 100] {
        assert_eq!(model.expected_life(hours(age)), hours(12));
        assert!(near(model.hazard(hours(age)), 1.0 / 12.0, 1e-12));
    }
}

#[test]
fn faster_time_shortens_lives_alike() {
    let (slow, fast) = (model("bathtub:typical"), model("bathtub:typical,speed=1440"));
    assert_eq!(fast.expected_life(Millis(0)).0, slow.expected_life(Millis(0)).0.div_ceil(1440));
    assert!(near(fast.cdf(Millis(30_000)), slow.cdf(hours(12)), 1e-4));
    assert!(near(fast.hazard(Millis(30_000)) / 1440.0, slow.hazard(hours(12)), 1e-9));
    assert_eq!(fast.cdf(Millis(60_000)), 1.0);
    assert_eq!(slow.sped_up(1440.0), fast);
}

#[test]
fn specifications_are_read_back_as_written() {
    for text in [
        "bathtub:a=0.45,tau1=1,tau2=0.8,b=24,limit=24",
        "exponential:mean=12h,speed=720",
        "lifetimes:a/b.csv,machine=n1-highcpu-16,zone=us-east1-b",
        "lifetimes:b.csv",
        "trace:c.csv,speed=2",
    ] {
        assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
    }
    let short: Spec = "bathtub:a=0.45,tau1=1,tau2=0.8,b=24".parse().unwrap();
    assert_eq!(short, "bathtub:typical".parse().unwrap());
    assert_eq!(
        "exponential:mean=90m".parse::<Spec>().unwrap().to_string(),
        "exponential:mean=1.5h"
    );
    for name in Bathtub::preset_names() {
        assert!(format!("bathtub:{name}").parse::<Spec>().is_ok());
    }
}

#[test]
fn unknown_specifications_are_refused() {
    for text in [
        "",
        "weibull:k=1",
        "bathtub:",
        "bathtub:n2-highcpu-16",
        "bathtub:a=0.45,tau1=1,tau2=0.8",
        "bathtub:a=1.2,tau1=1,tau2=0.8,b=24",
        "bathtub:a=0.4,tau1=0,tau2=0.8,b=24",
        "bathtub:typical,tau3=1",
        "exponential:12h",
        "exponential:mean=12",
        "exponential:mean=-1h",
        "exponential:mean=0h",
        "exponential:mean=infh",
        "lifetimes:",
        "lifetimes:a.csv,b.csv",
        "lifetimes:a.csv,region=x",
        "trace:",
        "trace:a.csv,speed=0",
    ] {
        let refused = text.parse::<Spec>();
        assert!(matches!(refused, Err(ModelError::BadSpec { .. })), "{text}: {refused:?}");
    }
}

const OBSERVED: &str = "# lifetimes of an afternoon
machine_type,zone,started_at,lifetime_seconds
small,east,2026-01-01,100
small,east,2026-01-01,200.5
large,east,2026-01-01,50
large,west,2026-01-01,400
small,west,2026-01-01,400
small,west,2026-01-01,
small,west,2026-01-01,-3
small,west,2026-01-01,0
";

fn lifetimes(text: &str, filter: &Filter) -> Result<Model, ModelError> {
    Ok(Shape::Lifetimes(Lifetimes::parse(text, filter)?).into())
}

#[test]
fn resampled_lifetimes_are_those_observed() {
    let model = lifetimes(OBSERVED, &Filter::default()).unwrap();
    let Shape::Lifetimes(data) = model.shape() else { unreachable!() };
    assert_eq!(data.skipped_rows(), 3);
    assert_eq!(data.ended().len(), 5);
    assert!(model.distance(data.ended()) < 1e-9);
    assert_eq!(model.expected_life(Millis(0)), Millis(230_100));
    assert_eq!(model.expected_life(Millis(200_500)), Millis(199_500));
    assert_eq!(model.expected_life(Millis(400_000)), Millis(0));
    let drawn = samples(&model, 1, 40_000);
    assert!(drawn.iter().all(|life| data.ended().contains(life)));
    assert!(model.distance(&drawn) < 1.63 / 200.0, "{}", model.distance(&drawn));
    let filter = Filter { machine: Some("small".to_owned()), zone: Some("east".to_owned()) };
    let filtered = lifetimes(OBSERVED, &filter).unwrap();
    assert_eq!(filtered.expected_life(Millis(0)), Millis(150_250));
}

#[test]
fn wrong_lifetimes_are_refused_with_their_line() {
    let none = Filter { machine: Some("huge".to_owned()), zone: None };
    assert!(matches!(lifetimes(OBSERVED, &none), Err(ModelError::NoLifetimes { .. })));
    assert!(matches!(lifetimes("", &none), Err(ModelError::NoLifetimes { .. })));
    let short = format!("{OBSERVED}small,west\n");
    let refused = lifetimes(&short, &Filter::default());
    assert!(matches!(refused, Err(ModelError::BadRow { line: 11, .. })), "{refused:?}");
    let headless = lifetimes("age\n1\n", &Filter::default());
    assert!(matches!(headless, Err(ModelError::BadRow { line: 1, .. })), "{headless:?}");
}

#[test]
fn machines_still_alive_count_as_far_as_they_were_seen() {
    // The example of four: one ends at 1, one is lost sight of at 2, two end at 3 and 4.
    let text = "lifetime_seconds\n1\n2+\n3\n4\n";
    let model = lifetimes(text, &Filter::default()).unwrap();
    assert!(near(model.cdf(Millis(1000)), 0.25, 1e-9));
    assert!(near(model.cdf(Millis(3000)), 1.0 - 0.75 / 2.0, 1e-9));
    assert_eq!(model.cdf(Millis(4000)), 1.0);
    let longest = lifetimes("lifetime_seconds\n1\n5+\n", &Filter::default()).unwrap();
    assert!(near(longest.cdf(Millis(4999)), 0.5, 1e-9));
    assert_eq!(longest.cdf(Millis(5000)), 1.0);
}

#[test]
fn fits_and_data_have_the_stated_shares_and_means() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/preemptions.csv");
    let path = option_env!("SANDERLING_PREEMPTIONS").unwrap_or(beside);
    let Ok(text) = std::fs::read_to_string(path) else {
        // Written past the test runner, which hides what a passing test prints.
        let why = format!("SKIPPED: no lifetimes at {path}; name them by SANDERLING_PREEMPTIONS\n");
        io::stderr().write_all(why.as_bytes()).unwrap();
        return;
    };
    for (machine, zone, rows, gone_in_two_hours, mean_hours) in [
        ("n1-highcpu-16", "us-east1-b", 91, 0.37, 12.4),
        ("n1-highcpu-32", "us-west1-a", 94, 0.47, 5.4),
        ("n1-highcpu-32", "us-central1-c", 321, 0.70, 3.5),
    ] {
        let filter = Filter { machine: Some(machine.to_owned()), zone: Some(zone.to_owned()) };
        let model = lifetimes(&text, &filter).unwrap();
        let Shape::Lifetimes(data) = model.shape() else { unreachable!() };
        assert_eq!((data.ended().len(), data.skipped_rows(), data.censored_rows()), (rows, 0, 0));
        assert!(near(model.cdf(hours(2)), gone_in_two_hours, 0.005), "{machine} {zone}");
        let mean = model.expected_life(Millis(0)).0 as f64 / MILLIS_PER_HOUR;
        assert!(near(mean, mean_hours, 0.05), "{machine} {zone}: {mean}");
        let drawn = samples(&model, 1, 20_000);
        assert!(model.distance(data.ended()) < 1e-9);
        assert!(model.distance(&drawn) < 1.63 / 20_000_f64.sqrt());
    }
    let all = lifetimes(&text, &Filter::default()).unwrap();
    let Shape::Lifetimes(data) = all.shape() else { unreachable!() };
    assert_eq!(data.ended().len(), 1442);
}

#[test]
fn trace_is_read_back_as_written_and_gives_its_lifetimes() {
    let text = "node,seconds,event,notice_seconds
a,0,start,
b,0,start,
c,0,start,
a,10,notice,30
a,12.5,cancel,
b,20,recommend,
b,20,notice,30
b,25,notice,5
c,60,kill,
c,70,start,
a,100,end,
c,100,end,
";
    let trace: Trace = text.parse().unwrap();
    assert_eq!(trace.to_string(), text);
    let lifetimes = trace.lifetimes().unwrap();
    assert_eq!(lifetimes.ended(), [Millis(30_000), Millis(60_000)]);
    assert_eq!(lifetimes.censored_rows(), 2);
    let bad = "node,seconds,event,notice_seconds\na,0,start,\na,1,notice,\n".parse::<Trace>();
    assert!(matches!(bad, Err(ModelError::BadRow { line: 3, .. })), "{bad:?}");
    for seconds in ["-1", "inf", "NaN", "soon"] {
        let bad = format!("node,seconds,event,notice_seconds\na,{seconds},start,\n");
        let bad = bad.parse::<Trace>();
        assert!(matches!(bad, Err(ModelError::BadRow { line: 2, .. })), "{seconds}: {bad:?}");
    }
    let bad = "node,seconds,event,notice_seconds\na,0,start,3\n".parse::<Trace>();
    assert!(matches!(bad, Err(ModelError::BadRow { line: 2, .. })), "{bad:?}");
}

#[test]
fn drawn_trace_lives_by_its_model() {
    let model = model("bathtub:n1-highcpu-16,speed=720");
    let fleet = FleetModel {
        slots: 200,
        horizon: Millis(3_600_000),
        notice: Millis(500),
        back_after: Millis(1000),
    };
    let trace = Trace::draw(&model, &fleet, 1);
    assert_eq!(trace, Trace::draw(&model, &fleet, 1));
    assert_eq!(trace, trace.to_string().parse().unwrap());
    let lifetimes = trace.lifetimes().unwrap();
    let count = lifetimes.ended().len();
    assert!(count > 5000, "{count}");
    let distance = model.distance(lifetimes.ended());
    // Those that the horizon cut off are missing among the ends: at most 200 of them.
    assert!(distance < 1.63 / (count as f64).sqrt() + 200.0 / count as f64, "{distance}");
    let drawn = Model::from(Shape::Lifetimes(lifetimes));
    assert!(drawn.distance(&samples(&model, 9, 10_000)) < 0.04);
}

#[test]
fn shipped_traces_are_those_that_their_comments_describe() {
    for (text, spec, fleet) in shipped() {
        let trace: Trace = text.parse().unwrap();
        let drawn = Trace::draw(&model(spec), &fleet, 3);
        assert_eq!(trace, drawn, "drawn anew:\n{drawn}");
        let load = Model::load(&"trace:shipped.csv".parse().unwrap(), |_| {
            Ok::<_, ModelError>(text.to_owned())
        });
        assert!(load.unwrap().expected_life(Millis(0)).0 > 0);
    }
}

#[test]
fn error_of_the_reader_is_a_source_of_a_model_without_its_file() {
    let read = |_: &str| Err(io::Error::from(io::ErrorKind::PermissionDenied));
    let error = Model::load(&"trace:t.csv".parse().unwrap(), read).unwrap_err();
    let text = "file t.csv of the preemption model could not be read: permission denied";
    assert_eq!(error.to_string(), text);
    let system = error.source().and_then(StdError::source).and_then(|it| it.downcast_ref());
    assert_eq!(system.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
    assert_eq!(error, Model::load(&"trace:t.csv".parse().unwrap(), read).unwrap_err());
}

fn shipped() -> [(&'static str, &'static str, FleetModel); 2] {
    let fleet = |notice| FleetModel {
        slots: 10,
        horizon: Millis(120_000),
        notice,
        back_after: Millis(2000),
    };
    [
        (
            include_str!("../../tests/data/bathtub-16-in-two-minutes.csv"),
            "bathtub:n1-highcpu-16,speed=720",
            fleet(Millis(3000)),
        ),
        (
            include_str!("../../tests/data/exponential-unnoticed.csv"),
            "exponential:mean=40s",
            fleet(Millis(0)),
        ),
    ]
}
