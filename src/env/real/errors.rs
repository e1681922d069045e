//! From the system's error numbers to the few kinds that the engine treats differently. The number
//! itself is kept, so that a report can name it.

use rustix::io::Errno;

use crate::env::{IoError, IoErrorKind};

impl From<Errno> for IoError {
    fn from(errno: Errno) -> Self {
        Self {
            kind: kind_of(errno),
            code: errno.raw_os_error(),
        }
    }
}

impl From<std::io::Error> for IoError {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Errno::from_raw_os_error(code).into(),
            // Made by the standard library itself, such as a path with a zero byte.
            None => Self::new(match error.kind() {
                std::io::ErrorKind::Unsupported => IoErrorKind::Unsupported,
                _ => IoErrorKind::Other,
            }),
        }
    }
}

fn kind_of(errno: Errno) -> IoErrorKind {
    match errno {
        Errno::NOENT => IoErrorKind::NotFound,
        Errno::EXIST => IoErrorKind::AlreadyExists,
        Errno::NOSPC | Errno::DQUOT => IoErrorKind::NoSpace,
        Errno::MFILE | Errno::NFILE => IoErrorKind::TooManyOpenFiles,
        Errno::INTR => IoErrorKind::Interrupted,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => IoErrorKind::PermissionDenied,
        Errno::AGAIN => IoErrorKind::WouldBlock,
        // ENOTSUP is the same number.
        Errno::OPNOTSUPP | Errno::NOSYS => IoErrorKind::Unsupported,
        _ => IoErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds() {
        let table = [
            (2, IoErrorKind::NotFound),
            (17, IoErrorKind::AlreadyExists),
            (28, IoErrorKind::NoSpace),
            (122, IoErrorKind::NoSpace),
            (24, IoErrorKind::TooManyOpenFiles),
            (23, IoErrorKind::TooManyOpenFiles),
            (4, IoErrorKind::Interrupted),
            (13, IoErrorKind::PermissionDenied),
            (1, IoErrorKind::PermissionDenied),
            (30, IoErrorKind::PermissionDenied),
            (11, IoErrorKind::WouldBlock),
            (95, IoErrorKind::Unsupported),
            (38, IoErrorKind::Unsupported),
            (5, IoErrorKind::Other),
            (20, IoErrorKind::Other),
            (21, IoErrorKind::Other),
        ];
        for (code, kind) in table {
            let expected = IoError { kind, code };
            assert_eq!(
                IoError::from(std::io::Error::from_raw_os_error(code)),
                expected
            );
            assert_eq!(IoError::from(Errno::from_raw_os_error(code)), expected);
        }
        let plain = std::io::Error::new(std::io::ErrorKind::InvalidInput, "zero byte");
        assert_eq!(IoError::from(plain), IoError::new(IoErrorKind::Other));
    }
}
