/* An update without Python, torch or BLAS: two hidden layers, forward and backward, clipping and Adam, by hand.
   Sizes are macros (B rows, I inputs, H units, O outputs); H is a multiple of 16. Weights have the layout of torch: [out, in], bias. */
#include <math.h>
#include <string.h>
typedef float v __attribute__((vector_size(32), aligned(4)));
#define ROWS(i, n) for (int i = 0; i < (n); i++)
enum { W0 = 0, B0 = I * H, W1 = B0 + H, B1 = W1 + H * H, W2 = B1 + H, B2 = W2 + O * H, SIZE = B2 + O };
typedef struct { float h0[B * H], h1[B * H], out[B * O]; } Kept;
static float t0[I * H], t1[H * H], d0[B * H], d1[B * H];

/* c[m, n] = a b + bias, with a[i, q] at i * si + q * sq and b[k, n]; six rows and sixteen columns at a time */
static void product(float *c, const float *a, int si, int sq, const float *b, int m, int k, int n, const float *bias) {
  for (int j = 0; j < n; j += 16) for (int i = 0; i < m; i += 6) {
    int rows = m - i < 6 ? m - i : 6;
    v s[6][2];
    ROWS(r, 6) ROWS(x, 2) s[r][x] = bias ? *(const v *)(bias + j + 8 * x) : (v){0};
    if (rows == 6) for (int q = 0; q < k; q++) {
      v one = *(const v *)(b + q * n + j), two = *(const v *)(b + q * n + j + 8);
      ROWS(r, 6) { float f = a[(i + r) * si + q * sq]; s[r][0] += f * one; s[r][1] += f * two; }
    } else for (int q = 0; q < k; q++) ROWS(r, rows) ROWS(x, 2) s[r][x] += a[(i + r) * si + q * sq] * *(const v *)(b + q * n + j + 8 * x);
    ROWS(r, rows) ROWS(x, 2) *(v *)(c + (i + r) * n + j + 8 * x) = s[r][x];
  }
}
static void transpose(float *to, const float *from, int rows, int cols) { ROWS(i, rows) ROWS(j, cols) to[j * rows + i] = from[i * cols + j]; }
static void activate(float *x, int n) {
#ifdef RELU
  ROWS(i, n) x[i] = x[i] > 0 ? x[i] : 0;
#else /* tanh as a rational function, some 3 ulp */
  ROWS(i, n) {
    float t = x[i] < -7.9f ? -7.9f : x[i] > 7.9f ? 7.9f : x[i], q = t * t;
    float p = t * (4.89352455891786e-3f + q * (6.37261928875436e-4f + q * (1.48572235717979e-5f + q * (5.12229709037114e-8f
            + q * (-8.60467152213735e-11f + q * (2.00018790482477e-13f + q * -2.76076847742355e-16f))))));
    x[i] = p / (4.89352518554385e-3f + q * (2.26843463243900e-3f + q * (1.18534705686654e-4f + q * 1.19825839466702e-6f)));
  }
#endif
}
static inline float derivative(float y) {
#ifdef RELU
  return y > 0;
#else
  return 1 - y * y;
#endif
}
void up(const float *w, const float *x, Kept *k) {
  transpose(t0, w + W0, H, I); product(k->h0, x, I, 1, t0, B, I, H, w + B0); activate(k->h0, B * H);
  transpose(t1, w + W1, H, H); product(k->h1, k->h0, H, 1, t1, B, H, H, w + B1); activate(k->h1, B * H);
  ROWS(i, B) ROWS(o, O) { float s = w[B2 + o]; ROWS(j, H) s += w[W2 + o * H + j] * k->h1[i * H + j]; k->out[i * O + o] = s; }
}
/* from gradients d of the outputs the gradient g of the weights and dx of the inputs from `from` on, unless null */
void down(const float *w, float *g, const float *x, const Kept *k, const float *d, float *dx, int from) {
  if (g) memset(g, 0, sizeof(float) * SIZE);
  ROWS(i, B) {
    memset(d1 + i * H, 0, sizeof(float) * H);
    ROWS(o, O) { float f = d[i * O + o]; ROWS(j, H) d1[i * H + j] += f * w[W2 + o * H + j]; }
    if (g) ROWS(o, O) { float f = d[i * O + o]; g[B2 + o] += f; ROWS(j, H) g[W2 + o * H + j] += f * k->h1[i * H + j]; }
    ROWS(j, H) d1[i * H + j] *= derivative(k->h1[i * H + j]);
    if (g) ROWS(j, H) g[B1 + j] += d1[i * H + j];
  }
  product(d0, d1, H, 1, w + W1, B, H, H, 0);
  ROWS(i, B) { ROWS(j, H) d0[i * H + j] *= derivative(k->h0[i * H + j]); if (g) ROWS(j, H) g[B0 + j] += d0[i * H + j]; }
  if (g) { product(g + W1, d1, 1, H, k->h0, H, B, H, 0); product(t0, x, 1, I, d0, I, B, H, 0); transpose(g + W0, t0, I, H); }
  if (dx) { transpose(t0, w + W0, H, I); ROWS(i, B) for (int a = from; a < I; a++) { float s = 0; ROWS(j, H) s += d0[i * H + j] * t0[a * H + j]; dx[i * (I - from) + a - from] = s; } }
}
/* clips the gradient to `norm`, takes a step of Adam, returns the norm; c1 and c2 correct the moments */
float step(float *w, float *g, float *mean, float *square, int n, float norm, float lr, float eps, float c1, float c2) {
  float s = 0; ROWS(i, n) s += g[i] * g[i];
  s = sqrtf(s); float scale = norm / (s + 1e-6f); if (scale > 1) scale = 1;
  ROWS(i, n) {
    float x = g[i] * scale; mean[i] += 0.1f * (x - mean[i]); square[i] = 0.999f * square[i] + 0.001f * x * x;
    w[i] -= lr / c1 * mean[i] / (sqrtf(square[i] / c2) + eps);
  }
  return s;
}
/* PPO: gradients of the logits, from log-probabilities `old` and standardized advantages */
void clipped(const float *out, const long *action, const float *old, const float *advantage, float clip, float *d) {
  float mean = 0, var = 0; ROWS(i, B) mean += advantage[i] / B; ROWS(i, B) var += (advantage[i] - mean) * (advantage[i] - mean);
  float scale = 1 / (sqrtf(var / (B - 1)) + 1e-8f);
  ROWS(i, B) {
    const float *z = out + i * O; float top = z[0], sum = 0;
    ROWS(o, O) top = z[o] > top ? z[o] : top;
    float p[O]; ROWS(o, O) sum += p[o] = expf(z[o] - top);
    float r = expf(z[action[i]] - top - logf(sum) - old[i]), a = (advantage[i] - mean) * scale;
    float cut = r < 1 - clip ? 1 - clip : r > 1 + clip ? 1 + clip : r, f = r * a <= cut * a ? r * a / B : 0;
    ROWS(o, O) d[i * O + o] = f * (p[o] / sum - (o == action[i]));
  }
}
/* gradients of `half` times the squared error, or with `huber` of the Huber loss, at one output of each row */
void regress(const float *out, const long *action, const float *target, float half, int huber, float *d) {
  memset(d, 0, sizeof(float) * B * O);
  ROWS(i, B) { int o = action ? action[i] : 0; float e = out[i * O + o] - target[i]; if (huber) e = e > 1 ? 1 : e < -1 ? -1 : e; d[i * O + o] = 2 * half * e / B; }
}
