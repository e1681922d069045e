//! The gate that every call passes: death, crash points, recording, faults, counters, digest.
//!
//! Mutating calls are numbered. A crash point names one and a place: before it has any effect,
//! inside (a part of the effect), or after (all of it, but the caller never hears). From then on
//! the process is dead and every call says so. Instead of dying, a *recorder* can keep the disk's
//! state at each of these places, because what a crash leaves depends on nothing else.

use std::collections::BTreeMap;

use sealstone::env::{FileKind, FileName, IoError, IoErrorKind, IoResult};

use super::state::State;
use super::{DiskOptions, SimulatedPanic};
use crate::choices::SmallRandom;
use crate::faults::{Call, FaultPlan};

/// Where in a call the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nothing has happened.
    Before,
    /// A part has happened.
    Inside,
    /// All has happened; nobody was told.
    After,
}

/// When the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// The number of the mutating call, from 0.
    pub mutation: u64,
    /// Where in it.
    pub place: Place,
    /// Whether the process dies by unwinding instead of at once.
    pub panic: bool,
}

/// When the process dies, told by the kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AimedCrash {
    /// The kind of call.
    pub call: Call,
    /// On which kind of file; `None` is any.
    pub file: Option<FileKind>,
    /// How many such calls pass before it.
    pub after: u64,
    /// Where in it.
    pub place: Place,
    /// Whether the process dies by unwinding instead of at once.
    pub panic: bool,
}

/// A state that a crash could have left.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of the mutating call.
    pub mutation: u64,
    /// Where in it.
    pub place: Place,
    /// Which call it was.
    pub call: Call,
    /// What the driver last noted with `set_mark`.
    pub mark: u64,
    /// The disk.
    pub state: State,
}

/// An open description.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// The name it was opened by.
    pub name: FileName,
    /// The file.
    pub inode: u32,
    /// Where the handle lies (`map` is given a `dyn File`).
    pub address: usize,
}

/// Everything behind the disk's lock.
#[derive(Debug)]
pub struct Core {
    pub state: State,
    pub options: DiskOptions,
    pub faults: FaultPlan,
    pub dead: bool,
    pub crash_at: Option<CrashPoint>,
    pub crash_on: Option<AimedCrash>,
    pub recorder: Option<Vec<Recorded>>,
    pub mark: u64,
    pub mutations: u64,
    pub calls: [u64; Call::COUNT],
    pub digest: u64,
    pub trace: Option<Vec<String>>,
    pub violations: Vec<String>,
    /// Open descriptions, in the order of the names they were opened by.
    pub open: Vec<OpenFile>,
    /// Mappings per inode.
    pub maps: BTreeMap<u32, u32>,
    pub descriptors: u64,
    pub locked_exclusive: bool,
    pub locked_shared: u32,
}

/// The error of a backend call with the system's number.
pub const fn os_error(kind: IoErrorKind, code: i32) -> IoError {
    let mut error = IoError::new(kind);
    error.code = code;
    error
}

/// EIO.
pub const EIO: IoError = os_error(IoErrorKind::Other, 5);
/// ENOSPC.
pub const ENOSPC: IoError = os_error(IoErrorKind::NoSpace, 28);
/// EMFILE.
pub const EMFILE: IoError = os_error(IoErrorKind::TooManyOpenFiles, 24);
/// EINTR.
pub const EINTR: IoError = os_error(IoErrorKind::Interrupted, 4);
/// EROFS.
pub const EROFS: IoError = os_error(IoErrorKind::PermissionDenied, 30);
/// ENOENT.
pub const ENOENT: IoError = os_error(IoErrorKind::NotFound, 2);
const CRASHED: IoError = IoError::new(IoErrorKind::Crashed);

impl Core {
    /// A running disk in that state.
    pub fn new(state: State, options: DiskOptions) -> Self {
        Self {
            state,
            options,
            faults: FaultPlan::default(),
            dead: false,
            crash_at: None,
            crash_on: None,
            recorder: None,
            mark: 0,
            mutations: 0,
            calls: [0; Call::COUNT],
            digest: 0,
            trace: None,
            violations: Vec::new(),
            open: Vec::new(),
            maps: BTreeMap::new(),
            descriptors: 0,
            locked_exclusive: false,
            locked_shared: 0,
        }
    }

    /// Whether a description of the file is open.
    pub fn is_open(&self, inode: u32) -> bool {
        self.open.iter().any(|file| file.inode == inode)
    }

    /// Entry of a call that changes nothing.
    pub fn observe(&mut self, call: Call) -> IoResult<()> {
        if self.dead {
            return Err(CRASHED);
        }
        self.calls[call as usize] += 1;
        Ok(())
    }

    /// A call that changes something: `partial` is a part of its effect on the state alone, `full`
    /// the whole of it, faults included.
    pub fn mutate<T>(
        &mut self,
        (call, file): (Call, Option<FileName>),
        partial: impl Fn(&mut State, &mut SmallRandom),
        full: impl FnOnce(&mut Self) -> IoResult<T>,
    ) -> IoResult<T> {
        self.observe(call)?;
        if self.state.shut_down {
            return Err(EROFS);
        }
        let number = self.mutations;
        self.mutations += 1;
        self.aim(number, call, file);
        self.record(number, Place::Before, call, None);
        self.die_at(number, Place::Before)?;
        let random =
            SmallRandom::new(self.options.seed ^ number.wrapping_mul(0xA24B_AED4_963E_E407));
        if self.recorder.is_some() {
            let mut state = self.state.clone();
            partial(&mut state, &mut random.clone());
            self.record(number, Place::Inside, call, Some(state));
        }
        if self
            .crash_at
            .is_some_and(|at| at.mutation == number && at.place == Place::Inside)
        {
            partial(&mut self.state, &mut random.clone());
            self.die_at(number, Place::Inside)?;
        }
        let result = full(self);
        self.record(number, Place::After, call, None);
        self.die_at(number, Place::After)?;
        result
    }

    /// An aimed crash becomes a numbered one when its call comes.
    fn aim(&mut self, number: u64, call: Call, file: Option<FileName>) {
        let Some(aimed) = &mut self.crash_on else {
            return;
        };
        let right = aimed.call == call
            && aimed
                .file
                .is_none_or(|kind| file.is_some_and(|file| file.kind == kind));
        if !right {
            return;
        }
        if aimed.after > 0 {
            aimed.after -= 1;
            return;
        }
        self.crash_at = Some(CrashPoint {
            mutation: number,
            place: aimed.place,
            panic: aimed.panic,
        });
        self.crash_on = None;
    }

    /// Puts what a call did into the digest and the trace.
    pub fn note(&mut self, call: Call, file: Option<FileName>, numbers: [u64; 3], data: &[u8]) {
        let name = file.map_or(0, |f| {
            (f.kind as u64 + 1) << 56 | u64::from(f.temporary) << 55 | (f.number << 1 >> 1)
        });
        for number in [call as u64, name, numbers[0], numbers[1], numbers[2]] {
            self.mix(number);
        }
        let (whole, rest) = data.as_chunks::<8>();
        for chunk in whole {
            self.mix(u64::from_le_bytes(*chunk));
        }
        for byte in rest {
            self.mix(u64::from(*byte));
        }
        if let Some(trace) = &mut self.trace {
            let file = file.map_or(String::new(), |file| file.to_string());
            trace.push(format!("{call:?} {file} {numbers:?} #{}", self.mutations));
        }
    }

    fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value)
            .wrapping_mul(0x9FB2_1C65_1E98_DF25)
            .rotate_left(29);
    }

    fn record(&mut self, mutation: u64, place: Place, call: Call, state: Option<State>) {
        if let Some(recorder) = &mut self.recorder {
            let state = state.unwrap_or_else(|| self.state.clone());
            recorder.push(Recorded {
                mutation,
                place,
                call,
                mark: self.mark,
                state,
            });
        }
    }

    fn die_at(&mut self, mutation: u64, place: Place) -> IoResult<()> {
        let due = |at: CrashPoint| at.mutation == mutation && at.place == place;
        let Some(at) = self.crash_at.filter(|at| due(*at)) else {
            return Ok(());
        };
        self.dead = true;
        if at.panic {
            std::panic::panic_any(SimulatedPanic);
        }
        Err(CRASHED)
    }
}
