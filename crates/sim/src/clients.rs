//! The clients of a run: writers, readers, callers, and the operator.

use crate::admin::Admin;
use crate::caller::Caller;
use crate::context::Context;
use crate::event::{Purpose, Timer};
use crate::lister::Lister;
use crate::plan::RunPlan;
use crate::reader::Reader;
use crate::wire::{Host, Response};
use crate::writer::Writer;

/// All of them.
#[derive(Debug)]
pub(crate) struct ClientShells {
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    callers: Vec<Caller>,
    admin: Admin,
    listers: Vec<Lister>,
}

impl ClientShells {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        let writers = (0..plan.writers).map(Host::Writer);
        let readers = (0..plan.readers).map(Host::Reader);
        let hosts = writers.chain(readers).chain((0..plan.callers).map(Host::Caller));
        Self {
            listers: hosts.map(|host| Lister::new(plan, host)).collect(),
            writers: (0..plan.writers).map(|number| Writer::new(plan, number)).collect(),
            readers: (0..plan.readers).map(|number| Reader::new(plan, number)).collect(),
            callers: (0..plan.callers).map(|number| Caller::new(plan, number)).collect(),
            admin: Admin::new(plan),
        }
    }

    /// Returns the operator.
    pub(crate) const fn admin(&mut self) -> &mut Admin {
        &mut self.admin
    }

    /// Starts the next process of a place.
    pub(crate) fn start(&mut self, context: &mut Context<'_>, host: Host) {
        match host {
            Host::Writer(number) => self.writers[usize::from(number)].start(context),
            Host::Reader(number) => self.readers[usize::from(number)].start(context),
            Host::Caller(number) => self.callers[usize::from(number)].start(context),
            Host::Admin => self.admin.start(context),
            other => unreachable!("{other} is no client"),
        }
        let mut listers = self.listers.iter_mut();
        if let Some(lister) = listers.find(|lister| lister.host() == host) {
            lister.start(context);
        }
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, host: Host, timer: Timer) {
        if timer == Timer::List {
            let mut listers = self.listers.iter_mut();
            let lister = listers.find(|lister| lister.host() == host);
            return lister.into_iter().for_each(|lister| lister.send(context));
        }
        match host {
            Host::Writer(number) => self.writers[usize::from(number)].timer(context, timer),
            Host::Reader(number) => self.readers[usize::from(number)].timer(context, timer),
            Host::Caller(number) => self.callers[usize::from(number)].timer(context, timer),
            Host::Admin => self.admin.timer(context, timer),
            other => unreachable!("{other} is no client"),
        }
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        purpose: Purpose,
        answer: Option<Response>,
    ) {
        match purpose {
            Purpose::Writer(number, call) => {
                self.writers[usize::from(number)].answered(context, call, answer);
            }
            Purpose::Reader(number, call) => {
                self.readers[usize::from(number)].answered(context, call, answer);
            }
            Purpose::Caller(number, call) => {
                self.callers[usize::from(number)].answered(context, call, answer);
            }
            Purpose::Admin(call) => self.admin.answered(context, call, answer),
            Purpose::List | Purpose::Suspect => {}
            other => unreachable!("{other:?} is of no client"),
        }
    }

    /// Names a client that is not done with its task.
    pub(crate) fn busy(&self) -> Option<String> {
        if let Some(number) = self.writers.iter().position(Writer::is_busy) {
            return Some(format!("writer{number} still writes"));
        }
        if let Some(number) = self.readers.iter().position(Reader::is_busy) {
            return Some(format!("reader{number} still reads"));
        }
        let number = self.callers.iter().position(Caller::is_busy)?;
        Some(format!("caller{number} still waits"))
    }
}
