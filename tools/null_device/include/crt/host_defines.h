/* What torch's own CUDA headers need of a toolkit that is not there. */
#pragma once
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_DEVICE
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __align__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __no_return__ __attribute__((noreturn))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __specialization_static
