//! Steps that act on the machine: faults, damage, limits, clock, pressure, crashes.

use std::time::Duration;

use sealstone::env::{FileKind, FileName, PressureLevel};

use super::Wrong;
use super::machine::Machine;
use super::text;
use crate::disk::{
    AimedCrash, Crash, CrashPoint, DiskOptions, Keep, Order, Place, Strength, Survivors,
};
use crate::faults::{Call, Fault, Rule};

impl Machine {
    /// Carries out a step on the machine; false if it is none.
    pub fn world_step(&mut self, first: &str, rest: &[&str]) -> Result<bool, Wrong> {
        match (first, rest) {
            ("fault", ["off"]) => self.env.disk.faults(|plan| plan.disarm()),
            ("fault", [fault, how @ ..]) => self.fault(fault, how)?,
            ("crash-at", ["never"]) => {
                self.env.disk.crash_at(None);
                self.env.disk.crash_on(None);
            }
            ("crash-at", how) => self.crash_at(how)?,
            ("capacity", [bytes]) => {
                let bytes = match *bytes {
                    "none" => DiskOptions::default().capacity_bytes,
                    "full" => self.env.disk.state().used_bytes,
                    _ => self.size(bytes)?,
                };
                self.env.disk.set_options(|o| o.capacity_bytes = bytes);
            }
            ("descriptors", [count]) => {
                let count = match *count {
                    "none" => DiskOptions::default().descriptors_max,
                    "full" => self.env.disk.descriptors(),
                    _ => self.size(count)?,
                };
                self.env.disk.set_options(|o| o.descriptors_max = count);
            }
            ("disk", how) => self.disk(how)?,
            ("clock", [ms]) => {
                let ms = self.size(ms)?;
                self.env.clock.advance(Duration::from_millis(ms));
            }
            ("wall-clock", [ms]) => self.env.clock.jump_wall(self.number(ms)? as i64),
            ("pressure", [level]) => self.env.pressure.set(level_named(level)?),
            ("spike", [look]) => {
                let look = u32::try_from(self.size(look)?).unwrap_or(u32::MAX);
                self.env.pressure.spike(look);
            }
            ("image", [name]) => {
                let files = self.env.disk.live_files();
                self.images.insert((*name).to_string(), files);
            }
            ("let", [name, "=", value @ ..]) => {
                let (value, rest) = self.measure(value)?;
                super::reads::nothing_left(rest)?;
                self.variables.insert((*name).to_string(), value);
            }
            ("locate", [name, file, bytes]) => {
                let content = self.content(self.file(file)?);
                let wanted = text::bytes(bytes)?;
                let at = content
                    .windows(wanted.len().max(1))
                    .position(|window| window == wanted);
                let at = at.ok_or_else(|| format!("the bytes are not in {file}"))?;
                self.variables.insert((*name).to_string(), at as i128);
            }
            _ => return self.damage(first, rest),
        }
        Ok(true)
    }

    fn damage(&mut self, first: &str, rest: &[&str]) -> Result<bool, Wrong> {
        let [file, numbers @ ..] = rest else {
            return Ok(false);
        };
        if !super::tree::DAMAGES.contains(&first) {
            return Ok(false);
        }
        let name = self.file(file)?;
        let disk = self.env.disk.clone();
        let length = self.content(name).len() as i128;
        self.variables.insert("len".into(), length);
        if let ("flip" | "overwrite", [offset, _]) = (first, numbers)
            && i128::from(self.size(offset)?) >= length
        {
            return Err(format!("{offset} is behind the file's {length} bytes").into());
        }
        let done = match (first, numbers) {
            ("flip", [offset, mask]) => disk.flip(name, self.size(offset)?, self.size(mask)? as u8),
            ("overwrite", [offset, bytes]) => {
                disk.overwrite(name, self.size(offset)?, &text::bytes(bytes)?)
            }
            ("truncate" | "extend", [to]) => disk.resize(name, self.size(to)?),
            ("delete-file", []) => disk.remove(name),
            ("spoil", [offset, count]) => {
                let offset = self.size(offset)?;
                disk.spoil(name, offset..offset + self.size(count)?)
            }
            ("displace", [from, to, count]) => {
                disk.displace(name, self.size(from)?, self.size(to)?, self.size(count)?)
            }
            _ => return Err(format!("wrong words behind {first}").into()),
        };
        self.damaged = true;
        match done {
            true => Ok(true),
            false => Err(format!("there is no {file}").into()),
        }
    }

    fn fault(&mut self, name: &str, mut how: &[&str]) -> Result<(), Wrong> {
        let fault = fault_named(name)?;
        let mut rule = Rule {
            fault,
            call: None,
            file: None,
            after: 0,
            every: 0,
            times: 1,
            seed: 0,
        };
        while let [word, rest @ ..] = how {
            how = match (*word, rest) {
                ("on", [kind, rest @ ..]) => {
                    rule.file = Some(file_kind(kind)?);
                    rest
                }
                ("nth", [count, rest @ ..]) => {
                    rule.after = self.size(count)?.max(1) - 1;
                    rest
                }
                ("every", [count, rest @ ..]) => {
                    rule.every = self.size(count)?.max(1) - 1;
                    rest
                }
                ("times", [count, rest @ ..]) => {
                    rule.times = self.size(count)? as u32;
                    rest
                }
                ("seed", [seed, rest @ ..]) => {
                    rule.seed = self.size(seed)?;
                    rest
                }
                ("always", rest) => {
                    rule.times = u32::MAX;
                    rest
                }
                (call, rest) => {
                    rule.call = Some(call_named(call)?);
                    rest
                }
            };
        }
        if let Some(call) = rule.call
            && !fault.calls().contains(&call)
        {
            return Err(format!("{name} does not happen to {}", call.name()).into());
        }
        self.damaged |= fault.damages();
        self.env.disk.arm(rule);
        Ok(())
    }

    fn crash_at(&mut self, how: &[&str]) -> Result<(), Wrong> {
        let place = |word: &str| match word {
            "before" => Some(Place::Before),
            "inside" => Some(Place::Inside),
            "after" => Some(Place::After),
            _ => None,
        };
        let (mut at, mut panic, mut file, mut call, mut count) =
            (Place::Before, false, None, None, 1);
        let mut words = how;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("panic", rest) => {
                    panic = true;
                    rest
                }
                ("nth", [number, rest @ ..]) => {
                    count = self.size(number)?.max(1);
                    rest
                }
                ("on", [kind, rest @ ..]) => {
                    file = Some(file_kind(kind)?);
                    rest
                }
                ("any", rest) => rest,
                (word, rest) => {
                    match place(word) {
                        Some(place) => at = place,
                        None => call = Some(call_named(word)?),
                    }
                    rest
                }
            };
        }
        match call {
            Some(call) => self.env.disk.crash_on(Some(AimedCrash {
                call,
                file,
                after: count - 1,
                place: at,
                panic,
            })),
            None => self.env.disk.crash_at(Some(CrashPoint {
                mutation: self.env.disk.mutations() + count - 1,
                place: at,
                panic,
            })),
        }
        Ok(())
    }

    /// How a life ends: `kill`, or `power` with what survives.
    pub fn crash_form(&self, how: &[&str]) -> Result<Crash, Wrong> {
        let (kind, mut words) = how.split_first().ok_or("crash kill, or crash power ...")?;
        match *kind {
            "kill" if words.is_empty() => return Ok(Crash::Kill),
            "power" => {}
            other => return Err(format!("no crash {other}").into()),
        }
        let mut survivors = Survivors::NOTHING;
        survivors.strength = self.env.disk.options().strength;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("nothing", rest) => rest,
                ("everything", rest) => {
                    survivors.keep = Keep::Everything;
                    rest
                }
                ("seed", [seed, rest @ ..]) => {
                    survivors.keep = Keep::Seeded(self.size(seed)?);
                    rest
                }
                ("mask", [mask, rest @ ..]) => {
                    survivors.keep = Keep::Mask(self.size(mask)?);
                    rest
                }
                ("order", [order, rest @ ..]) => {
                    survivors.order = match *order {
                        "any" => Order::AnySubset,
                        "file" => Order::PrefixPerFile,
                        "global" => Order::PrefixGlobal,
                        other => return Err(format!("no order {other}").into()),
                    };
                    rest
                }
                ("sector", [bytes, rest @ ..]) => {
                    survivors.sector_bytes = self.size(bytes)?.clamp(64, 1 << 16) as u32;
                    rest
                }
                ("garbage", rest) => {
                    survivors.garbage = true;
                    rest
                }
                ("adversarial", rest) => {
                    survivors.strength = Strength::Adversarial;
                    rest
                }
                (other, _) => return Err(format!("what survives: {other}?").into()),
            };
        }
        Ok(Crash::Power(survivors))
    }

    fn disk(&mut self, how: &[&str]) -> Result<(), Wrong> {
        match how {
            ["honest"] => self.env.disk.set_options(|o| o.strength = Strength::Honest),
            ["adversarial"] => {
                let set = |o: &mut DiskOptions| o.strength = Strength::Adversarial;
                self.env.disk.set_options(set);
            }
            ["lying"] => self.env.disk.set_options(|o| o.sync_is_a_lie = true),
            ["truthful"] => self.env.disk.set_options(|o| o.sync_is_a_lie = false),
            ["listings", "sorted"] => self.env.disk.set_options(|o| o.listing_seed = None),
            ["listings", seed] => {
                let seed = self.size(seed)?;
                self.env.disk.set_options(|o| o.listing_seed = Some(seed));
            }
            ["seed", seed] => {
                let seed = self.size(seed)?;
                self.env.reseed(seed);
            }
            _ => {
                let words = "disk honest, adversarial, lying, truthful, listings N, seed N";
                return Err(words.into());
            }
        }
        Ok(())
    }

    /// The file that `KIND`, `KIND:INDEX`, `KIND:last` or `log:active` means.
    pub fn file(&self, word: &str) -> Result<FileName, Wrong> {
        let (kind, index) = word.split_once(':').unwrap_or((word, "0"));
        let kind = file_kind(kind)?;
        let files = self.env.disk.live_files();
        let names: Vec<FileName> = files
            .keys()
            .filter(|name| name.kind == kind && !name.temporary)
            .copied()
            .collect();
        let used = |name: &&FileName| {
            let content = files.get(name).map_or(&[][..], |bytes| &bytes[..]);
            content.iter().skip(64).any(|byte| *byte != 0)
        };
        let found = match index {
            "last" => names.last(),
            "active" => names.iter().rev().find(used),
            _ => {
                let index = self.number(index)?;
                let count = names.len() as i128;
                let index = if index < 0 { count + index } else { index };
                usize::try_from(index).ok().and_then(|at| names.get(at))
            }
        };
        found
            .copied()
            .ok_or_else(|| format!("there is no {word}").into())
    }

    /// The bytes of a file as a process sees them.
    pub fn content(&self, name: FileName) -> Vec<u8> {
        self.env.disk.live_files().remove(&name).unwrap_or_default()
    }
}

pub fn level_named(word: &str) -> Result<PressureLevel, Wrong> {
    match word {
        "normal" => Ok(PressureLevel::Normal),
        "high" => Ok(PressureLevel::High),
        "critical" => Ok(PressureLevel::Critical),
        other => Err(format!("no pressure {other}").into()),
    }
}

pub fn file_kind(word: &str) -> Result<FileKind, Wrong> {
    Ok(match word {
        "lock" => FileKind::Lock,
        "manifest" => FileKind::Manifest,
        "log" => FileKind::Log,
        "segment" => FileKind::Segment,
        "run" => FileKind::Run,
        other => return Err(format!("no kind of file: {other}").into()),
    })
}

pub fn fault_named(word: &str) -> Result<Fault, Wrong> {
    let all = Fault::ALL.into_iter().chain([Fault::Zero]);
    let found = all.into_iter().find(|fault| fault.name() == word);
    found.ok_or_else(|| format!("no fault {word}").into())
}

pub fn call_named(word: &str) -> Result<Call, Wrong> {
    let found = Call::ALL.into_iter().find(|call| call.name() == word);
    found.ok_or_else(|| format!("no call {word}").into())
}
