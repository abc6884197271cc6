//! Bags whose machines end at given times, and many that are drawn.

use super::*;
use crate::checkpoint::hads_interval;
use crate::placement::Draw;

const HOUR: u64 = 3_600_000;

const BAG: ReplayedBag = ReplayedBag {
    tasks: 4,
    work: Millis(2 * HOUR),
    deadline: Millis(10 * HOUR),
    spot_machines: 2,
    launch: Millis(120_000),
    lock_age: Millis(30_000),
    margin: Millis(HOUR / 2),
    hibernates_for: None,
};

const HOURLY: BagPolicy = BagPolicy {
    interval: IntervalPolicy::Fixed(Millis(HOUR)),
    dump: Millis(60_000),
    notice: Millis(0),
    copies: DumpCopies::Untouched,
    waits_for_hibernated: false,
};

/// The checkpoints of HADS: two slots, and tasks that wait for their machines.
const HADS: BagPolicy =
    BagPolicy { copies: DumpCopies::TwoSlots, waits_for_hibernated: true, ..HOURLY };

fn model(spec: &str) -> Model {
    Model::load(&spec.parse().expect("a model"), |_| Err("no file")).expect("needs no file")
}

fn steady() -> Model {
    model("exponential:mean=1000000h")
}

/// Returns the largest draw of a life that is not longer than this one.
fn draw_of(model: &Model, life: Millis) -> u64 {
    (0..64).rev().fold(0_u64, |draw, bit| {
        let larger = draw | (1_u64 << bit);
        if model.sample(larger) <= life { larger } else { draw }
    })
}

#[test]
fn steady_spot_machines_do_all_of_it() {
    let model = steady();
    let run = BagReplay::new(&model, BAG, HOURLY).run(|| u64::MAX);
    // Two machines with two tasks each; a task of two hours has one dump.
    assert_eq!(run.elapsed.0, 120_000 + 2 * (2 * HOUR + 60_000));
    assert_eq!(run.spot.0, 2 * run.elapsed.0);
    assert_eq!((run.on_demand, run.lost, run.late, run.taken), (Millis(0), Millis(0), 0, 0));
    assert_eq!(run.dumped.0, 4 * 60_000);
}

#[test]
fn without_spot_machines_each_task_runs_on_demand_from_its_latest_start() {
    let model = steady();
    let bag = ReplayedBag { spot_machines: 0, ..BAG };
    let run = BagReplay::new(&model, bag, HOURLY).run(|| u64::MAX);
    // Two dumps are expected, and none is taken on demand.
    assert_eq!(run.on_demand.0, 4 * (2 * HOUR + 120_000));
    assert_eq!(run.elapsed.0, 10 * HOUR - HOUR / 2 - 2 * 60_000);
    assert_eq!((run.spot, run.dumped, run.late), (Millis(0), Millis(0), 0));
}

#[test]
fn task_goes_on_elsewhere_after_its_machine_was_taken() {
    let model = model("exponential:mean=2h");
    let bag = ReplayedBag { tasks: 1, ..BAG };
    // The first machine lives for about 1.39 h, the second for ever.
    let life = model.sample(1 << 63).0;
    assert!((HOUR + 200_000..2 * HOUR).contains(&life), "{life}");
    let mut draws = [1 << 63, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, HOURLY).run(|| draws.next().expect("two"));
    // Launch, an hour and a dump are kept; the rest is lost.
    assert_eq!(run.lost.0, life - 120_000 - HOUR - 60_000);
    // Lock, launch, reading, and the second hour.
    assert_eq!(run.elapsed.0, life + 30_000 + 120_000 + 60_000 + HOUR);
    assert_eq!((run.taken, run.late, run.on_demand), (1, 0, Millis(0)));
    assert_eq!(run.spot.0, life + run.elapsed.0 - life - 30_000);
}

#[test]
fn notice_that_is_long_enough_loses_nothing() {
    let model = model("exponential:mean=2h");
    let bag = ReplayedBag { tasks: 1, ..BAG };
    let policy = BagPolicy { notice: Millis(120_000), ..HOURLY };
    let mut draws = [1 << 63, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, policy).run(|| draws.next().expect("two"));
    assert_eq!((run.lost, run.taken), (Millis(0), 0));
    // One dump after an hour, one at the notice.
    assert_eq!(run.dumped.0, 2 * 60_000);
    let short = BagPolicy { notice: Millis(60_000), ..HOURLY };
    let mut draws = [1 << 63, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, short).run(|| draws.next().expect("two"));
    assert!(run.lost > Millis(0) && run.taken == 1);
}

#[test]
fn machine_with_a_notice_that_is_too_short_for_a_dump_takes_no_other_task() {
    let model = model("exponential:mean=2h");
    // The task of the only machine ends within the notice.
    let life = Millis(120_000 + 2 * HOUR + 2 * 60_000);
    let bag = ReplayedBag { tasks: 2, spot_machines: 1, ..BAG };
    let policy = BagPolicy { dump: Millis(600_000), notice: Millis(700_000), ..HOURLY };
    let work = Millis(2 * HOUR - 600_000);
    let mut draws = [draw_of(&model, life), u64::MAX].into_iter();
    let bag = ReplayedBag { work, ..bag };
    let run = BagReplay::new(&model, bag, policy).run(|| draws.next().expect("two"));
    assert_eq!((run.lost, run.taken, run.late), (Millis(0), 0, 0));
    // An hour, a dump and the rest on each machine.
    assert_eq!(run.elapsed.0, 2 * (120_000 + work.0 + 600_000));
}

/// The notice is as long as a dump, so none is begun for it. The one under way has half of its time
/// left.
#[test]
fn dump_under_way_at_a_short_notice_is_finished_and_its_task_handed_over() {
    let model = model("exponential:mean=2h");
    let policy = BagPolicy { notice: Millis(60_000), ..HOURLY };
    let run = |life: u64| {
        let mut draws = [draw_of(&model, Millis(life)), u64::MAX].into_iter();
        let bag = ReplayedBag { tasks: 1, ..BAG };
        BagReplay::new(&model, bag, policy).run(|| draws.next().expect("two"))
    };
    let dumped = 120_000 + HOUR + 60_000;
    let saved = run(dumped + 30_000);
    assert_eq!((saved.lost, saved.taken, saved.dumped), (Millis(0), 0, Millis(60_000)));
    // Launch, reading, and the second hour.
    assert_eq!(saved.elapsed.0, dumped + 120_000 + 60_000 + HOUR);
    // The dump has just begun: its rest with the margin does not end in time.
    let late = run(dumped + 5000);
    assert_eq!(late.taken, 1);
    assert!(late.lost > Millis(0), "{late:?}");
}

/// A machine is cut off in its third dump, which goes into the first slot, and the next one in the
/// dump after it, which goes into the second.
#[test]
fn machine_that_ends_in_a_dump_leaves_one_copy_fewer_of_two_slots() {
    let model = model("exponential:mean=2h");
    let bag =
        ReplayedBag { tasks: 1, work: Millis(4 * HOUR), deadline: Millis(1000 * HOUR), ..BAG };
    let first = draw_of(&model, Millis(120_000 + 5 * HOUR + HOUR / 2));
    let second = draw_of(&model, Millis(120_000 + 2 * HOUR + HOUR / 2));
    let run = |copies: DumpCopies, draws: &[u64]| {
        let policy = BagPolicy { dump: Millis(HOUR), copies, ..HOURLY };
        let mut draws = draws.iter().copied();
        BagReplay::new(&model, bag, policy).run(|| draws.next().expect("enough"))
    };
    let in_part = model.sample(first).0 - 120_000 - 4 * HOUR;
    let once = run(DumpCopies::TwoSlots, &[first, u64::MAX]);
    assert_eq!(once, run(DumpCopies::Untouched, &[first, u64::MAX]), "one copy is left");
    assert_eq!((once.lost.0, once.taken), (in_part, 1));
    // It reads the copy, works, and dumps.
    let in_next = model.sample(second).0 - 120_000;
    let twice = run(DumpCopies::Untouched, &[first, second, u64::MAX]);
    assert_eq!((twice.lost.0, twice.taken), (in_part + in_next, 2));
    let without = run(DumpCopies::TwoSlots, &[first, second, u64::MAX]);
    assert_eq!((without.lost.0, without.taken), (in_part + in_next + 2 * HOUR, 2));
    // Two hours of work and two dumps more, and no dump to read.
    assert_eq!(without.elapsed.0, twice.elapsed.0 + 4 * HOUR - HOUR);
}

/// With the same machines a task has as much left on each of them, or more, so it ends later.
#[test]
fn task_with_two_slots_never_ends_sooner_than_one_whose_dumps_are_untouched() {
    let model = model("exponential:mean=1h");
    let bag = ReplayedBag { tasks: 1, deadline: Millis(100_000 * HOUR), ..BAG };
    let interval = IntervalPolicy::Fixed(Millis(HOUR / 3));
    let untouched = BagPolicy { interval, dump: Millis(HOUR / 3), ..HOURLY };
    let slots = BagPolicy { copies: DumpCopies::TwoSlots, ..untouched };
    let mut later = 0;
    for seed in 0..1000 {
        let [untouched, slots] = [untouched, slots].map(|policy| {
            let mut draw = Draw::new(seed);
            BagReplay::new(&model, bag, policy).run(|| draw.next())
        });
        assert!(slots.elapsed >= untouched.elapsed, "{seed}: {slots:?} {untouched:?}");
        later += u32::from(slots.elapsed > untouched.elapsed);
    }
    assert!(later > 0, "no machine has ended in two dumps in a row");
}

#[test]
fn hibernated_machine_goes_on_where_it_stopped() {
    let model = model("exponential:mean=2h");
    let bag = ReplayedBag { tasks: 1, hibernates_for: Some(Millis(HOUR)), ..BAG };
    // It stops in its second part, and is away for about 0.69 h.
    let mut draws = [1 << 63, 1 << 63, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, HADS).run(|| draws.next().expect("three"));
    let away = self::model("exponential:mean=1h").sample(1 << 63).0;
    assert_eq!(run.elapsed.0, 120_000 + 2 * HOUR + 60_000 + away);
    assert_eq!(run.spot.0, run.elapsed.0 - away, "nothing is paid meanwhile");
    assert_eq!((run.lost, run.taken, run.on_demand), (Millis(0), 1, Millis(0)));
}

#[test]
fn agents_take_the_task_of_a_hibernated_machine_when_its_lock_is_stale() {
    let model = model("exponential:mean=2h");
    let bag = ReplayedBag { tasks: 1, hibernates_for: Some(Millis(HOUR)), ..BAG };
    let life = model.sample(1 << 63).0;
    // It is away for longer than the task takes elsewhere.
    let mut draws = [1 << 63, u64::MAX, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, HOURLY).run(|| draws.next().expect("three"));
    assert_eq!(run.lost.0, life - 120_000 - HOUR - 60_000);
    // Lock, launch, reading, and the second hour.
    assert_eq!(run.elapsed.0, life + 30_000 + 120_000 + 60_000 + HOUR);
    assert_eq!(run.spot.0, run.elapsed.0 - 30_000);
    assert_eq!((run.taken, run.late), (1, 0));
}

#[test]
fn task_waits_for_a_hibernated_machine_until_its_latest_start() {
    let model = model("exponential:mean=2h");
    let bag = ReplayedBag { tasks: 1, hibernates_for: Some(Millis(HOUR)), ..BAG };
    let mut draws = [1 << 63, u64::MAX, u64::MAX].into_iter();
    let run = BagReplay::new(&model, bag, HADS).run(|| draws.next().expect("three"));
    // An hour and one dump are expected; another machine is started for them before the margin,
    // reads the dump, and takes no other one.
    assert_eq!(run.elapsed.0, 10 * HOUR - HOUR / 2);
    assert_eq!((run.taken, run.late), (1, 0));
}

/// What hibernates loses nothing if the task waits for it. If not, it loses what its machine did
/// since the last dump each time.
#[test]
fn tasks_lose_nothing_to_hibernation_or_a_part_each_time() {
    for spec in ["exponential:mean=3h", "bathtub:typical", "bathtub:n1-highcpu-16"] {
        let model = model(spec);
        let far = Millis(100_000 * HOUR);
        let bag = ReplayedBag { deadline: far, hibernates_for: Some(Millis(HOUR / 2)), ..BAG };
        for seed in 0..1000 {
            let [waiting, ours] = [HADS, HOURLY].map(|policy| {
                let mut draw = Draw::new(seed);
                BagReplay::new(&model, bag, policy).run(|| draw.next())
            });
            assert_eq!(waiting.lost, Millis(0), "{spec} {seed}: {waiting:?}");
            let part = HOUR + 2 * 60_000;
            assert!(ours.lost.0 <= u64::from(ours.taken) * part, "{spec} {seed}: {ours:?}");
            assert_eq!((waiting.late, ours.late), (0, 0));
            assert_eq!((waiting.on_demand, ours.on_demand), (Millis(0), Millis(0)));
        }
    }
}

#[test]
fn every_run_ends_and_pays_for_all_its_work() {
    for spec in ["exponential:mean=3h", "bathtub:typical", "bathtub:n1-highcpu-16"] {
        let model = model(spec);
        let fixed = IntervalPolicy::Fixed(hads_interval(BAG.work, HOURLY.dump));
        for policy in [
            HOURLY,
            BagPolicy { interval: fixed, ..HOURLY },
            BagPolicy { interval: IntervalPolicy::Optimum, notice: Millis(120_000), ..HOURLY },
            BagPolicy { interval: fixed, ..HADS },
        ] {
            for seed in 0..80 {
                let mut draw = Draw::new(seed);
                let hibernates_for = (seed >= 40).then_some(Millis(HOUR / 2));
                let bag = ReplayedBag { tasks: 1 + seed as u32 % 9, hibernates_for, ..BAG };
                let run = BagReplay::new(&model, bag, policy).run(|| draw.next());
                let paid = run.spot.0 + run.on_demand.0;
                let used = u64::from(bag.tasks) * bag.work.0 + run.dumped.0 + run.lost.0;
                assert!(paid >= used, "{spec} {policy:?} {seed}: {run:?}");
                assert!(run.elapsed.0 <= bag.deadline.0 || run.late > 0, "{run:?}");
            }
        }
    }
}
