//! Simulated managers: the driver around their decisions.

use sanderling_core::Machine;
use sanderling_core::background::Background;
use sanderling_core::manager::Manager as Decisions;
use sanderling_core::relocation::{Input, Output};
use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{
    Epoch, Millis, NodeId, Nonce, Order, OrderReply, Refusal, Reply, Request,
};

use crate::Broken;
use crate::check::first::UnderWay;
use crate::event::{ManagerCall, Purpose, Timer};
use crate::plan::Plan;
use crate::wire::{Answer, Ask, DataAnswer, DataAsk, Place, data, meta};
use crate::world::World;

/// One manager.
#[derive(Debug)]
pub(crate) struct Manager {
    holder: Nonce,
    is_acting: bool,
    decisions: Decisions,
    under_way: UnderWay,
    wake_at: Option<u64>,
}

/// How long the right to act lasts.
const LEASE: Millis = Millis(1500);

/// How often the right is renewed and the drains are looked at.
const POLL_MICROS: u64 = 200_000;

/// Time of one call to the namenode.
const CALL_MILLIS: u64 = 1000;

impl Manager {
    pub(crate) fn new(plan: &Plan, broken: Option<Broken>) -> Self {
        let mut background = plan.background.config();
        background.exposure.is_on &= broken != Some(Broken::NeverCopied);
        background.rebalance.is_on &= broken != Some(Broken::NeverRebalanced);
        background.pace.yields_to_drains = broken != Some(Broken::BalanceIntoDrain);
        let decisions = Decisions::new(plan.limits.relocator.clone(), background);
        let under_way = UnderWay::default();
        Self { holder: Nonce(0), is_acting: false, decisions, under_way, wake_at: None }
    }
}

impl World {
    pub(crate) fn manager_start(&mut self, number: u8) {
        let holder = Nonce(self.random.next());
        self.managers[usize::from(number)] =
            Manager { holder, ..Manager::new(&self.plan, self.broken) };
        self.eagers[usize::from(number)].restart();
        let micros = self.random.below(POLL_MICROS);
        self.set_timer(Place::Manager(number), micros, Timer::Poll);
    }

    fn manager_ask(&mut self, number: u8, request: Request, call: ManagerCall) {
        let purpose = Purpose::Manager(number, call);
        self.call(
            Place::Manager(number),
            Place::Namenode,
            Ask::Meta(request),
            CALL_MILLIS,
            purpose,
        );
    }

    pub(crate) fn manager_timer(&mut self, number: u8, timer: Timer) {
        match timer {
            Timer::Poll => {
                let holder = self.managers[usize::from(number)].holder;
                let name = format!("manager{number}");
                self.manager_ask(
                    number,
                    Request::Manage { holder, name, lease: LEASE },
                    ManagerCall::Manage,
                );
                let is_acting = self.managers[usize::from(number)].is_acting;
                if is_acting {
                    self.manager_ask(number, Request::Drains { holder }, ManagerCall::Drains);
                    self.eager_poll(number, holder);
                }
                self.set_timer(Place::Manager(number), POLL_MICROS, Timer::Poll);
            }
            Timer::Relocate => {
                let now = self.clock(Place::Manager(number));
                let micros = self.now;
                let manager = &mut self.managers[usize::from(number)];
                if manager.wake_at.is_some_and(|at| at <= micros) {
                    manager.wake_at = None;
                    manager.decisions.handle_deadline(now);
                    self.manager_act(number);
                }
            }
            Timer::Late(late) => self.eager_late(number, late),
            _ => {}
        }
    }

    pub(crate) fn manager_answered(
        &mut self,
        number: u8,
        call: ManagerCall,
        answer: Option<Answer>,
    ) {
        let input = match call {
            ManagerCall::Eager(call) => return self.eager_answered(number, call, answer),
            ManagerCall::Manage => return self.manager_granted(number, meta(answer)),
            ManagerCall::Drains => match meta(answer) {
                Some(Ok(Reply::Drains { drains, nodes })) => {
                    self.eagers[usize::from(number)].see(&nodes);
                    self.managers[usize::from(number)].under_way.see(&drains, &nodes);
                    Input::Drains { drains, nodes }
                }
                Some(Err(Refusal::NotManager { .. })) => return self.manager_stop(number),
                _ => return,
            },
            ManagerCall::Forecast => return,
            ManagerCall::Fetch(node) => Input::Candidates { node, page: page(answer) },
            ManagerCall::Page(call) => Input::Page { call, page: page(answer) },
            ManagerCall::DropCopies(call) => {
                let is_done = matches!(meta(answer), Some(Ok(_)));
                Input::Dropped { call, is_done }
            }
            ManagerCall::Reserve(call) => Input::Reserved { call, epochs: epochs(answer) },
            ManagerCall::Commit(call) => {
                let epochs = epochs(answer);
                let moved = epochs.iter().flatten().filter(|epoch| epoch.is_ok()).count();
                if call < Background::CALLS_FROM {
                    self.statistics.moved_blocks += moved as u64;
                }
                Input::Committed { call, epochs }
            }
            ManagerCall::Push(call) => {
                self.managers[usize::from(number)].under_way.end(call);
                let outcomes = match data(answer) {
                    Some(Ok(DataAnswer::Order(OrderReply::Pushed(outcomes)))) => Some(outcomes),
                    _ => None,
                };
                Input::Pushed { call, outcomes }
            }
            ManagerCall::Abandon(call) => {
                let is_done = matches!(meta(answer), Some(Ok(_)));
                Input::Abandoned { call, is_done }
            }
        };
        let now = self.clock(Place::Manager(number));
        self.managers[usize::from(number)].decisions.handle(now, input);
        self.manager_act(number);
    }

    fn manager_granted(&mut self, number: u8, answer: Option<Result<Reply, Refusal>>) {
        match answer {
            Some(Ok(_)) => self.managers[usize::from(number)].is_acting = true,
            Some(Err(Refusal::NotManager { .. })) => self.manager_stop(number),
            _ => {}
        }
    }

    pub(crate) fn manager_holder(&self, number: u8) -> Nonce {
        self.managers[usize::from(number)].holder
    }

    /// Another manager acts: nothing that this one knew holds any more. As in the server, the calls
    /// of its decisions end with them: the next ones count theirs from the beginning again, and
    /// would take the answers for their own.
    fn manager_stop(&mut self, number: u8) {
        let manager = &mut self.managers[usize::from(number)];
        if manager.is_acting {
            let holder = manager.holder;
            *manager = Manager { holder, ..Manager::new(&self.plan, self.broken) };
            self.forget_calls(|purpose| match purpose {
                Purpose::Manager(_, ManagerCall::Manage | ManagerCall::Eager(_)) => false,
                Purpose::Manager(of, _) => *of == number,
                _ => false,
            });
        }
    }

    /// Does what the decisions want done.
    fn manager_act(&mut self, number: u8) {
        let holder = self.managers[usize::from(number)].holder;
        while let Some(output) = self.managers[usize::from(number)].decisions.poll_output() {
            let mut under_way = std::mem::take(&mut self.managers[usize::from(number)].under_way);
            under_way.begin(&output);
            self.check_keeps_off(&under_way, &output);
            self.managers[usize::from(number)].under_way = under_way;
            match output {
                Output::Fetch { node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.manager_ask(number, request, ManagerCall::Fetch(node));
                }
                Output::Page { call, node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.manager_ask(number, request, ManagerCall::Page(call));
                }
                Output::DropCopies { call, blocks } => {
                    let request = Request::DropCopies { holder, blocks };
                    self.manager_ask(number, request, ManagerCall::DropCopies(call));
                }
                Output::Reserve { call, moves } => {
                    let request = Request::Reserve { holder, moves };
                    self.manager_ask(number, request, ManagerCall::Reserve(call));
                }
                Output::Commit { call, moves } => {
                    let request = Request::Commit { holder, moves };
                    self.manager_ask(number, request, ManagerCall::Commit(call));
                }
                Output::Abandon { call, blocks } => {
                    let request = Request::Abandon { holder, blocks };
                    self.manager_ask(number, request, ManagerCall::Abandon(call));
                }
                Output::Forecast { node, forecast } => {
                    let request = Request::Forecast { holder, node, forecast };
                    self.manager_ask(number, request, ManagerCall::Forecast);
                }
                Output::Push { call, source, address, moves, within } => {
                    let Some(place) = Place::at(&address) else { continue };
                    let ask = Ask::Data(source, DataAsk::Order(Order::Push { moves }));
                    let purpose = Purpose::Manager(number, ManagerCall::Push(call));
                    self.call(Place::Manager(number), place, ask, within.0, purpose);
                }
            }
        }
        self.manager_wake(number);
    }

    fn manager_wake(&mut self, number: u8) {
        let place = Place::Manager(number);
        let Some(due) = self.managers[usize::from(number)].decisions.deadline() else { return };
        let at = self.now + self.until(place, due).max(1000);
        let manager = &mut self.managers[usize::from(number)];
        if manager.wake_at.is_none_or(|before| at < before) {
            manager.wake_at = Some(at);
            self.set_timer(place, at - self.now, Timer::Relocate);
        }
    }

    /// Returns where a node's process was started.
    pub(crate) fn place_of(&self, node: NodeId) -> Option<Place> {
        self.namenode.catalog().node_policy(node).and_then(|(_, address)| Place::at(address))
    }
}

fn epochs(answer: Option<Answer>) -> Option<Vec<Result<Epoch, Refusal>>> {
    match meta(answer) {
        Some(Ok(Reply::Epochs(epochs))) => Some(epochs),
        _ => None,
    }
}

fn page(answer: Option<Answer>) -> Option<(Vec<MoveCandidate>, bool)> {
    match meta(answer) {
        Some(Ok(Reply::Candidates { candidates, is_more })) => Some((candidates, is_more)),
        _ => None,
    }
}
