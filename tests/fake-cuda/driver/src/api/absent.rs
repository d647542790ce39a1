//! Functions that are there to be linked against, and do nothing: crates that link with the driver name all they may ever
//! call.

use crate::world::World;

const NOT_SUPPORTED: i32 = 801;

macro_rules! absent {
    ($($name:ident),* $(,)?) => {$(
        /// Not supported.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name() -> i32 {
            World::get().enter(stringify!($name)).err().unwrap_or(NOT_SUPPORTED)
        }
    )*};
}
absent! {
    cuArray3DCreate_v2,
    cuArray3DGetDescriptor_v2,
    cuArrayDestroy,
    cuCtxCreate_v2,
    cuCtxDestroy_v2,
    cuCtxGetApiVersion,
    cuCtxGetCacheConfig,
    cuCtxGetFlags,
    cuCtxGetLimit,
    cuCtxGetSharedMemConfig,
    cuCtxGetStreamPriorityRange,
    cuCtxPopCurrent_v2,
    cuCtxPushCurrent_v2,
    cuCtxSetCacheConfig,
    cuCtxSetLimit,
    cuCtxSetSharedMemConfig,
    cuDestroyExternalMemory,
    cuDevicePrimaryCtxReset_v2,
    cuExternalMemoryGetMappedBuffer,
    cuFuncSetCacheConfig,
    cuFuncSetSharedMemConfig,
    cuGraphAddKernelNode,
    cuGraphCreate,
    cuGraphGetEdges,
    cuGraphGetNodes,
    cuGraphKernelNodeGetParams,
    cuGraphNodeGetType,
    cuImportExternalMemory,
    cuLaunchHostFunc,
    cuLinkAddData_v2,
    cuLinkComplete,
    cuLinkCreate_v2,
    cuLinkDestroy,
    cuMemAdvise,
    cuMemAllocHost_v2,
    cuMemAllocManaged,
    cuMemPrefetchAsync,
    cuMemcpy2D_v2,
    cuMemcpyAtoH_v2,
    cuMemcpyHtoA_v2,
    cuMemsetD16_v2,
    cuMemsetD32_v2,
    cuModuleGetGlobal_v2,
    cuModuleLoad,
    cuOccupancyAvailableDynamicSMemPerBlock,
    cuOccupancyMaxPotentialBlockSize,
    cuStreamGetFlags,
    cuStreamGetPriority,
    cuTexObjectCreate,
    cuTexObjectGetResourceDesc,
}
