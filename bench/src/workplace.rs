//! Where a measurement makes its stores.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

/// A directory to work in: the one that was named, or one of its own that goes with this.
///
/// Its own is in the current directory, not where the system keeps what is temporary: that is often memory,
/// and what is measured is a disk. Its name has always the same length.
#[derive(Debug)]
pub enum Workplace {
    /// Stays, empty.
    Named(PathBuf),
    /// Goes.
    Own(TempDir),
}

impl Workplace {
    /// The directory that was named, or a new one.
    pub fn of(named: Option<&Path>) -> Result<Self> {
        Ok(match named {
            Some(path) => Self::Named(path.to_owned()),
            None => {
                let mut builder = tempfile::Builder::new();
                builder.prefix("sealstone-bench-");
                Self::Own(builder.tempdir_in(std::env::current_dir()?)?)
            }
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Own(directory) => directory.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_directory_goes_and_a_named_one_stays() {
        let own = Workplace::of(None).expect("a directory");
        let path = own.path().to_owned();
        assert!(path.is_dir());
        drop(own);
        assert!(!path.exists());
        let parent = tempfile::tempdir().expect("a directory");
        let named = Workplace::of(Some(parent.path())).expect("is there");
        assert_eq!(named.path(), parent.path());
        drop(named);
        assert!(parent.path().is_dir());
    }
}
