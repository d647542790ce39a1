/* A norm and a product from C, on the CPU or on a GPU's memory alike.
 *
 *   cargo build --release -p tilewright-c
 *   cc -I c/include c/examples/norm.c target/release/libtilewright_c.a -lm -lpthread -ldl -o norm && ./norm
 */
#include "tilewright.h"
#include <math.h>
#include <stdio.h>

static int fail(const char *what) {
    printf("%s: %s\n", what, tilewright_message());
    return 1;
}

int main(void) {
    /* two rows of three, four elements apart; what lies between them stays */
    float x[8] = {3, 4, 0, -1, 0, 0, 5, -1}, y[8] = {7, 7, 7, 7, 7, 7, 7, 7}, w[3] = {1, 1, 2};
    tilewright_matrix mx = {x, 2, 3, 4}, my = {y, 2, 3, 4};
    if (tilewright_rmsnorm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, TILEWRIGHT_F32, mx, w, my, 0.0f)) return fail("rmsnorm");
    float rms = sqrtf(25.0f / 3.0f);
    float wanted[8] = {3 / rms, 4 / rms, 0, 7, 0, 0, 10 / rms, 7};
    for (int i = 0; i < 8; i++)
        if (fabsf(y[i] - wanted[i]) > 1e-6f) return printf("y[%d] is %f, not %f\n", i, y[i], wanted[i]), 1;

    float b[3] = {1, 10, 100}, c[2] = {0, 0};
    tilewright_matrix mb = {b, 1, 3, 3}, mc = {c, 2, 1, 1};
    if (tilewright_gemm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, mx, mb, mc)) return fail("gemm");
    if (c[0] != 43 || c[1] != 500) return printf("c is %f, %f\n", c[0], c[1]), 1;

    float r[8] = {0, 0, 0, -2, 1, 0, 0, -2};
    tilewright_matrix mr = {r, 2, 3, 4};
    if (tilewright_rmsnorm_residual(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, TILEWRIGHT_F32, mx, mr, w, my, 0.0f))
        return fail("rmsnorm_residual");
    if (r[0] != 3 || r[4] != 1 || r[6] != 5 || r[3] != -2) return printf("r is wrong\n"), 1;

    /* what does not fit is a code and a message */
    tilewright_matrix wide = {b, 1, 2, 2};
    int code = tilewright_gemm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, mx, wide, mc);
    printf("%d: %s\n", code, tilewright_message());
    code = tilewright_rmsnorm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, TILEWRIGHT_BF16, mx, w, my, 0.0f);
    printf("%d: %s\n", code, tilewright_message());
    tilewright_matrix null = {NULL, 2, 3, 4};
    code = tilewright_rmsnorm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, TILEWRIGHT_F32, null, w, my, 0.0f);
    printf("%d: %s\n", code, tilewright_message());
    tilewright_matrix overlapping = {y, 2, 3, 1};
    code = tilewright_rmsnorm(TILEWRIGHT_CPU, NULL, TILEWRIGHT_F32, TILEWRIGHT_F32, mx, w, overlapping, 0.0f);
    printf("%d: %s\n", code, tilewright_message());
    code = tilewright_gemm(TILEWRIGHT_CPU, NULL, 9, mx, mb, mc);
    printf("%d: %s\n", code, tilewright_message());
    code = tilewright_gemm(-5, NULL, TILEWRIGHT_F32, mx, mb, mc);
    printf("%d: %s\n", code, tilewright_message());
    code = tilewright_gemm(0, NULL, TILEWRIGHT_F32, mx, mb, mc);
    printf("%d: %s\n", code, code == TILEWRIGHT_OK ? "enqueued" : tilewright_message());
    return 0;
}
