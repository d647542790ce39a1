/* tilewright's kernels on memory and streams of the caller's. Needs nothing but this header and the library; the CUDA
 * driver is looked for when a GPU is first named. */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns: 0, or why nothing was done. tilewright_message() says it in words, naming argument, expected
 * and found. */
enum {
    TILEWRIGHT_OK = 0,
    TILEWRIGHT_ARGUMENT = 1,  /* extents, strides, alignment, element type, a null pointer */
    TILEWRIGHT_NO_DEVICE = 2, /* no driver, one too old, no such GPU, no kernel for it */
    TILEWRIGHT_DRIVER = 3,    /* a call of the driver failed, or something that ran earlier */
    TILEWRIGHT_CAPTURING = 4, /* not possible while the stream records, as a kernel's first use */
    TILEWRIGHT_INTERNAL = 5
};

/* Elements. */
enum { TILEWRIGHT_F32 = 0, TILEWRIGHT_F16 = 1, TILEWRIGHT_BF16 = 2 };

/* The CPU, in place of a GPU's CUDA ordinal: memory of the process, and no stream (NULL). */
#define TILEWRIGHT_CPU (-1)

/* Rows of adjacent elements, row_stride elements apart. On a GPU, data is a CUdeviceptr. */
typedef struct {
    void *data;
    size_t rows, cols, row_stride;
} tilewright_matrix;

/* For all functions below:
 *
 * - stream is a CUstream of the device's primary context (the one that CUDA's runtime uses), or NULL for the legacy
 *   default stream. Work is enqueued on it; nothing is waited for, and nothing is allocated on the device. The first
 *   call of a kind loads its kernel; after that it can be recorded into a graph.
 * - From the call until the stream has passed it, nobody writes the inputs, and nobody uses the outputs; memory is not
 *   freed. The library does not look at it otherwise and keeps nothing.
 * - Inputs and outputs do not overlap, except where a function says so. */

/* c = a b^T: a of m x k, b of n x k, c of m x n, of one element type. */
int tilewright_gemm(int device, void *stream, int dtype, tilewright_matrix a, tilewright_matrix b, tilewright_matrix c);

/* y = x / sqrt(mean(x^2) + eps) * w, row by row; w has as many elements as a row, of type w_dtype: x's, or f32. */
int tilewright_rmsnorm(int device, void *stream, int dtype, int w_dtype, tilewright_matrix x, const void *w,
                       tilewright_matrix y, float eps);

/* The same of r + x, which is rounded to the element type and takes the place of r. */
int tilewright_rmsnorm_residual(int device, void *stream, int dtype, int w_dtype, tilewright_matrix x,
                                tilewright_matrix r, const void *w, tilewright_matrix y, float eps);

/* What the last function of this thread that did not return 0 had to say. Valid until the next one. Never NULL. */
const char *tilewright_message(void);

#ifdef __cplusplus
}
#endif
#endif
