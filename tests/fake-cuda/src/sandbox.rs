//! The test's side: processes that find the fake driver, and the connection to it in there.

use crate::kernel::KernelBody;
use std::ffi::{CString, OsString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in processes that a [`Sandbox`] started.
const CHILD: &str = "FAKE_CUDA_CHILD";

/// A folder with a driver, and what a process is started with to find it there.
pub struct Sandbox {
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// Names under which the driver is looked for.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

impl Sandbox {
    fn empty() -> Sandbox {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("fake-cuda-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Sandbox { folder, environment: Vec::new() }
    }

    fn library() -> PathBuf {
        let exe = std::env::current_exe().unwrap_or_default();
        let deps = exe.parent().unwrap_or(Path::new("."));
        // examples lie in a folder beside
        [deps.to_path_buf(), deps.join("../deps"), deps.join("deps")]
            .iter()
            .map(|d| d.join("libtilewright_fake_driver.so"))
            .find(|p| p.exists())
            .unwrap_or_else(|| panic!("no fake driver beside {}", exe.display()))
    }

    fn write(self, bytes: &[u8]) -> Sandbox {
        for name in NAMES {
            let path = self.folder.join(name);
            std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        self
    }

    /// With the fake driver in it.
    #[must_use]
    pub fn new() -> Sandbox {
        let sandbox = Sandbox::empty();
        let library = Sandbox::library();
        // one file, so that both names mean one library
        for name in NAMES {
            let link = sandbox.folder.join(name);
            std::os::unix::fs::symlink(&library, &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
        }
        sandbox
    }

    /// Without a driver, also where one is installed: what is found under its name is none.
    #[must_use]
    pub fn without_driver() -> Sandbox {
        Sandbox::empty().write(b"not a library\n")
    }

    /// With a driver that lacks some functions, as older ones do.
    #[must_use]
    pub fn lacking(functions: &[&str]) -> Sandbox {
        let library = Sandbox::library();
        let mut bytes = std::fs::read(&library).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
        for f in functions {
            // The name in the library's table of symbols: looked up by its hash, and then compared.
            let name = [b"\0", f.as_bytes(), b"\0"].concat();
            let mut found = false;
            for at in 0..bytes.len() - name.len() {
                if bytes[at..].starts_with(&name) {
                    bytes[at + 1..at + 3].copy_from_slice(b"no");
                    found = true;
                }
            }
            assert!(found, "the fake driver has no {f}");
        }
        let sandbox = Sandbox::empty();
        let file = sandbox.folder.join(NAMES[0]);
        std::fs::write(&file, bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let link = sandbox.folder.join(NAMES[1]);
        std::os::unix::fs::symlink(&file, &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
        sandbox
    }

    /// Sets `FAKE_CUDA_{name}`: `FAIL` (see the driver's faults), `VERSION` (13000), `CAPABILITY` (90), `DEVICES` (1),
    /// `POOLS` (1), `PAGEABLE` (0).
    #[must_use]
    pub fn set(self, name: &str, value: impl ToString) -> Sandbox {
        self.variable(&format!("FAKE_CUDA_{name}"), value)
    }

    /// Sets any variable of the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl ToString) -> Sandbox {
        self.environment.push((name.into(), value.to_string().into()));
        self
    }

    /// Runs one test of this program in a process of its own, and returns what it printed.
    pub fn output(&self, test: &str) -> Output {
        let exe = std::env::current_exe().unwrap_or_else(|e| panic!("{e}"));
        let mut command = Command::new(exe);
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env("LD_LIBRARY_PATH", &self.folder).env(CHILD, "1").env("RUST_BACKTRACE", "0");
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.output().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Runs one test of this program in a process of its own, which must pass.
    ///
    /// # Panics
    /// Unless it does.
    pub fn run(&self, test: &str) -> String {
        let output = self.output(test);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{test} in a process of its own ({}):\n{text}", output.status);
        assert!(text.contains("test result: ok. 1 passed"), "{test} did not run:\n{text}");
        text
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether this process was started by a [`Sandbox`].
#[must_use]
pub fn in_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs `body` in a process that finds the fake driver: a test's whole code is `child("its name", || ..)`.
pub fn child(test: &str, body: impl FnOnce(Fake)) {
    if in_child() {
        body(Fake::connect());
    } else {
        Sandbox::new().run(test);
    }
}

/// What exists of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Pieces of device memory.
    pub memory: u64,
    /// Pieces of page-locked host memory.
    pub host: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Recorded graphs.
    pub graphs: u64,
    /// Graphs to launch.
    pub execs: u64,
    /// Modules.
    pub modules: u64,
}

/// The driver that this process has loaded, if it is the fake.
#[derive(Clone, Copy)]
pub struct Fake {
    library: *mut c_void,
}
// SAFETY: a library's handle; what it exports may be called from any thread.
unsafe impl Send for Fake {}
// SAFETY: as above.
unsafe impl Sync for Fake {}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: i32 = 2;

impl Fake {
    /// # Panics
    /// If `libcuda.so` is not the fake driver.
    #[must_use]
    pub fn connect() -> Fake {
        // SAFETY: a string; the library is never closed.
        let library = unsafe { dlopen(c"libcuda.so".as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "no libcuda.so in this process");
        let fake = Fake { library };
        let _: unsafe extern "C" fn(*const c_char) -> u64 = fake.symbol("fake_cuda_count");
        fake
    }

    fn symbol<F: Copy>(&self, name: &str) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the library is open; the name is a string.
        let found = unsafe { dlsym(self.library, text.as_ptr()) };
        assert!(!found.is_null(), "the driver in this process is not the fake: no {name}");
        // SAFETY: a function of this type, by the callers below.
        unsafe { std::mem::transmute_copy(&found) }
    }

    fn number(&self, function: &str, of: &str) -> u64 {
        let f: unsafe extern "C" fn(*const c_char) -> u64 = self.symbol(function);
        let of = CString::new(of).unwrap_or_default();
        // SAFETY: a string.
        unsafe { f(of.as_ptr()) }
    }

    fn lines(&self, kind: &str) -> Vec<String> {
        let f: unsafe extern "C" fn(*const c_char, *mut u8, usize) -> usize = self.symbol("fake_cuda_text");
        let kind = CString::new(kind).unwrap_or_default();
        let mut text = vec![0u8; 1 << 20];
        // SAFETY: as long as it says.
        let n = unsafe { f(kind.as_ptr(), text.as_mut_ptr(), text.len()) };
        String::from_utf8_lossy(&text[..n.min(1 << 20)]).lines().map(str::to_string).collect()
    }

    /// Calls of a function so far; of all for `*`.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.number("fake_cuda_count", function)
    }

    /// Makes calls fail from now on: see `Fault::parse`. Numbers count from the beginning of the process.
    pub fn fail(&self, faults: &str) {
        let f: unsafe extern "C" fn(*const c_char) = self.symbol("fake_cuda_faults");
        let faults = CString::new(faults).unwrap_or_default();
        // SAFETY: a string.
        unsafe { f(faults.as_ptr()) }
    }

    /// Makes the `n`th call of `function` from now on fail, counted from 1.
    pub fn fail_next(&self, function: &str, n: u64, code: i32) {
        self.fail(&format!("{function}:{}={code}", self.calls(function) + n));
    }

    /// What broke the driver's contract so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lines("violations")
    }

    /// Which calls were made to fail.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        self.lines("failed")
    }

    /// The calls that `body` makes, by name.
    pub fn calls_of(&self, body: impl FnOnce()) -> Vec<String> {
        self.lines("start log");
        body();
        self.lines("log")
    }

    /// When work runs: 0 as late as may be; otherwise at random moments that follow from the seed.
    pub fn seed(&self, seed: u64) {
        let f: extern "C" fn(u64) = self.symbol("fake_cuda_seed");
        f(seed);
    }

    /// Runs all work, as if time had passed.
    pub fn run(&self) {
        let f: extern "C" fn() = self.symbol("fake_cuda_run");
        f();
    }

    /// What exists, after all work has run.
    #[must_use]
    pub fn live(&self) -> Live {
        self.run();
        let of = |kind| self.number("fake_cuda_live", kind);
        Live {
            memory: of("memory"),
            host: of("host memory"),
            streams: of("streams"),
            events: of("events"),
            graphs: of("graphs"),
            execs: of("execs"),
            modules: of("modules"),
        }
    }

    /// Gives launches of an entry something to do.
    ///
    /// # Safety
    /// `sizes` are the entry's parameters' sizes; `body` reads them as such.
    pub unsafe fn kernel(&self, entry: &str, sizes: &[usize], body: KernelBody) {
        let f: unsafe extern "C" fn(*const c_char, *const usize, usize, KernelBody) = self.symbol("fake_cuda_kernel");
        let entry = CString::new(entry).unwrap_or_default();
        // SAFETY: the caller's.
        unsafe { f(entry.as_ptr(), sizes.as_ptr(), sizes.len(), body) }
    }
}
