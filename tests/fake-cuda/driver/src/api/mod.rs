//! The driver's functions.

mod absent;
mod device;
mod graph;
mod memory;
mod module;
mod stream;

/// Defines functions of the driver: each is counted, may be made to fail, and has the world to itself.
macro_rules! api {
    ($(fn $name:ident($($a:ident: $t:ty),* $(,)?) |$w:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> $crate::world::Code {
            let mut world = $crate::world::World::get();
            let $w = &mut *world;
            let result = $w.enter(stringify!($name)).and_then(|()| -> Result<(), $crate::world::Code> { $body });
            result.err().unwrap_or($crate::world::SUCCESS)
        }
    )*};
}
pub(crate) use api;

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), crate::world::Code> {
    if to.is_null() {
        return Err(crate::world::INVALID_VALUE);
    }
    // SAFETY: the caller's.
    unsafe { to.write(value) };
    Ok(())
}
