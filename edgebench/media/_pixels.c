/* Pixels in one pass: resize, crop or pad, normalise and lay out, bit for bit as Pillow does it.
 *
 * Pillow resamples 8-bit pictures in two passes, one a direction. Coefficients are fixed-point numbers of 22 bits;
 * each pass rounds and clips to 8 bits. Integer sums are the same in any order, so any order of additions and any
 * vector width gives Pillow's pixels. A coefficient is split as high * 2048 + low, so that two 16-bit
 * multiply-and-add instructions give its exact 32-bit product.
 *
 * Only the rows and columns that the crop needs are computed. Padding is virtual: what falls on it is the sum of its
 * coefficients times its colour.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_AVX2 1
#include <immintrin.h>
#endif
#if defined(__aarch64__) && defined(__ARM_NEON)
#define HAVE_NEON 1
#include <arm_neon.h>
#endif

#define PRECISION 22
#define HALF (1 << (PRECISION - 1))
#define SPLIT 2048
#define SLACK 64 /* bytes behind every row of ours that vector code may read or write */
#define LIMIT (1 << 24) /* the largest side of any picture */

#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

static int use_vectors = 1; /* switched off by tests that compare the paths */

/* ---------------------------------------------------------------- filters */

typedef double (*Filter)(double);

static double box_filter(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

static double bilinear_filter(double x) {
    if (x < 0.0) x = -x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double hamming_filter(double x) {
    if (x < 0.0) x = -x;
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x = x * M_PI;
    return sin(x) / x * (0.54f + 0.46f * cos(x));
}

static double bicubic_filter(double x) {
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double sinc(double x) {
    if (x == 0.0) return 1.0;
    x = x * M_PI;
    return sin(x) / x;
}

static double lanczos_filter(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

static const struct {
    const char *name;
    Filter filter;
    double support;
} FILTERS[] = {
    {"box", box_filter, 0.5},         {"bilinear", bilinear_filter, 1.0}, {"hamming", hamming_filter, 1.0},
    {"bicubic", bicubic_filter, 2.0}, {"lanczos", lanczos_filter, 3.0},
};

/* ----------------------------------------------------------- coefficients */

/* How outputs of one direction are made: output i is the sum over k of coefficients[i * width + k] * input[first[i] + k]
 * plus bias[4 * i + channel], shifted. Inputs are positions in the picture itself, not in its padding. */
typedef struct {
    int outputs, width; /* width: taps an output, a multiple of 4, filled with zeros */
    int *first, *count;
    int32_t *coefficients;
    int16_t *high, *low;
    int32_t *bias;
    int lowest, highest; /* inputs that are used: [lowest, highest) */
} Taps;

static void free_taps(Taps *t) {
    free(t->first);
    free(t->count);
    free(t->coefficients);
    free(t->high);
    free(t->low);
    free(t->bias);
    memset(t, 0, sizeof *t);
}

/* Outputs [begin, end) of `size` virtual inputs -> `out_size`; real inputs are [offset, offset + real). */
static int make_taps(Taps *t, int kind, int size, int out_size, int begin, int end, int offset, int real,
                     const uint8_t pad[3]) {
    const Filter filter = FILTERS[kind].filter;
    const double scale = (double)size / out_size;
    const double filterscale = scale < 1.0 ? 1.0 : scale;
    const double support = FILTERS[kind].support * filterscale;
    const double ss = 1.0 / filterscale;
    const int most = (int)ceil(support) * 2 + 1;
    const int width = (most + 3) / 4 * 4;
    const size_t outputs = (size_t)(end - begin);
    memset(t, 0, sizeof *t);
    if (outputs * (size_t)width > (size_t)1 << 28) return -1;
    t->outputs = end - begin;
    t->width = width;
    t->first = calloc(outputs, sizeof *t->first);
    t->count = calloc(outputs, sizeof *t->count);
    t->coefficients = calloc(outputs * width, sizeof *t->coefficients);
    t->high = calloc(outputs * width, sizeof *t->high);
    t->low = calloc(outputs * width, sizeof *t->low);
    t->bias = calloc(outputs * 4, sizeof *t->bias);
    double *weights = calloc((size_t)most, sizeof *weights);
    if (!t->first || !t->count || !t->coefficients || !t->high || !t->low || !t->bias || !weights) {
        free(weights);
        free_taps(t);
        return -1;
    }
    t->lowest = real;
    t->highest = 0;
    for (int i = 0; i < t->outputs; i++) {
        const double center = (begin + i + 0.5) * scale;
        int low = (int)(center - support + 0.5);
        int high = (int)(center + support + 0.5);
        if (low < 0) low = 0;
        if (high > size) high = size;
        const int taps = high - low;
        double sum = 0.0;
        for (int k = 0; k < taps; k++) {
            weights[k] = filter((k + low - center + 0.5) * ss);
            sum += weights[k];
        }
        int32_t *own = t->coefficients + (size_t)i * width;
        int64_t outside = 0;
        int first = low - offset, kept = 0;
        if (first < 0) first = 0;
        if (first > real) first = real;
        for (int k = 0; k < taps; k++) {
            const double weight = (sum != 0.0 ? weights[k] / sum : weights[k]) * (1 << PRECISION);
            const int32_t fixed = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
            const int place = low + k - offset;
            if (place >= 0 && place < real) {
                own[kept++] = fixed;
            } else {
                outside += fixed;
            }
        }
        for (int k = 0; k < kept; k++) {
            const int32_t high_part = (own[k] + (own[k] >= 0 ? SPLIT / 2 : -SPLIT / 2)) / SPLIT;
            t->high[(size_t)i * width + k] = (int16_t)high_part;
            t->low[(size_t)i * width + k] = (int16_t)(own[k] - high_part * SPLIT);
        }
        t->first[i] = first;
        t->count[i] = kept;
        for (int c = 0; c < 3; c++) t->bias[4 * i + c] = (int32_t)(outside * pad[c]) + HALF;
        if (kept) {
            if (first < t->lowest) t->lowest = first;
            if (first + kept > t->highest) t->highest = first + kept;
        }
    }
    if (t->highest < t->lowest) t->lowest = t->highest = 0;
    free(weights);
    return 0;
}

static inline uint8_t clip8(int32_t sum) {
    const int32_t value = sum >> PRECISION;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/* ------------------------------------------------- across: along one row */

/* `row` begins at input `base`; writes 3 bytes an output. */
static void across_portable(const Taps *t, const uint8_t *row, int base, uint8_t *out) {
    for (int i = 0; i < t->outputs; i++) {
        const int32_t *k = t->coefficients + (size_t)i * t->width;
        const int count = t->count[i];
        const uint8_t *p = row + 3 * (size_t)(count ? t->first[i] - base : 0);
        int32_t r = t->bias[4 * i], g = t->bias[4 * i + 1], b = t->bias[4 * i + 2];
        for (int n = 0; n < count; n++, p += 3) {
            r += k[n] * p[0];
            g += k[n] * p[1];
            b += k[n] * p[2];
        }
        out[3 * i] = clip8(r);
        out[3 * i + 1] = clip8(g);
        out[3 * i + 2] = clip8(b);
    }
}

#ifdef HAVE_NEON
/* Reads up to 5 bytes, and writes one byte, behind what it needs. */
static void across_neon(const Taps *t, const uint8_t *row, int base, uint8_t *out) {
    for (int i = 0; i < t->outputs; i++) {
        const int32_t *k = t->coefficients + (size_t)i * t->width;
        const int count = t->count[i];
        const uint8_t *p = row + 3 * (size_t)(count ? t->first[i] - base : 0);
        int32x4_t sum = vld1q_s32(t->bias + 4 * i);
        for (int n = 0; n < count; n++, p += 3) {
            const uint16x4_t wide = vget_low_u16(vmovl_u8(vld1_u8(p)));
            sum = vmlaq_n_s32(sum, vreinterpretq_s32_u32(vmovl_u16(wide)), k[n]);
        }
        const int16x4_t half = vqmovn_s32(vshrq_n_s32(sum, PRECISION));
        uint8_t bytes[8];
        vst1_u8(bytes, vqmovun_s16(vcombine_s16(half, half)));
        memcpy(out + 3 * i, bytes, 3);
    }
}
#endif

#ifdef HAVE_AVX2
/* Four taps an instruction: the lower lane holds taps 0 and 1 of r, g, b, the upper one taps 2 and 3. */
#define ACROSS_SETUP                                                                                            \
    const __m256i pick = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /* lower */ \
                                          6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);          \
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, /* lower */         \
                                            4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);

__attribute__((target("avx2"))) static inline void finish_pixel(__m256i high, __m256i low, __m128i bias, uint8_t *out) {
    const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high, 11), low);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, bias), PRECISION);
    sum = _mm_packs_epi32(sum, sum);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
    memcpy(out, &bytes, 4); /* the fourth byte is written over by the next pixel, or lies in the slack */
}

__attribute__((target("avx2"))) static void across_avx2_1(const Taps *t, const uint8_t *row, int base, uint8_t *out) {
    ACROSS_SETUP
    for (int i = 0; i < t->outputs; i++) {
        const int16_t *kh = t->high + (size_t)i * t->width, *kl = t->low + (size_t)i * t->width;
        const int count = t->count[i];
        const uint8_t *p = row + 3 * (size_t)(count ? t->first[i] - base : 0);
        __m256i high = _mm256_setzero_si256(), low = high;
        for (int n = 0; n < count; n += 4, p += 12) {
            const __m256i h = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(kh + n))), spread);
            const __m256i l = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(kl + n))), spread);
            const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
            const __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), pick);
            high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, h));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, l));
        }
        finish_pixel(high, low, _mm_loadu_si128((const __m128i *)(t->bias + 4 * i)), out + 3 * (size_t)i);
    }
}

/* The same for four rows at once: the coefficients are loaded once. */
__attribute__((target("avx2"))) static void across_avx2_4(const Taps *t, const uint8_t *const rows[4], int base,
                                                          uint8_t *const outs[4]) {
    ACROSS_SETUP
    for (int i = 0; i < t->outputs; i++) {
        const int16_t *kh = t->high + (size_t)i * t->width, *kl = t->low + (size_t)i * t->width;
        const int count = t->count[i];
        const size_t start = 3 * (size_t)(count ? t->first[i] - base : 0);
        const uint8_t *p0 = rows[0] + start, *p1 = rows[1] + start, *p2 = rows[2] + start, *p3 = rows[3] + start;
        __m256i h0 = _mm256_setzero_si256(), h1 = h0, h2 = h0, h3 = h0, l0 = h0, l1 = h0, l2 = h0, l3 = h0;
        for (int n = 0; n < count; n += 4) {
            const __m256i h = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(kh + n))), spread);
            const __m256i l = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(kl + n))), spread);
#define STEP(P, H, L)                                                                                             \
    {                                                                                                             \
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(P));                                              \
        const __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), pick);                     \
        H = _mm256_add_epi32(H, _mm256_madd_epi16(pixels, h));                                                    \
        L = _mm256_add_epi32(L, _mm256_madd_epi16(pixels, l));                                                    \
        P += 12;                                                                                                  \
    }
            STEP(p0, h0, l0) STEP(p1, h1, l1) STEP(p2, h2, l2) STEP(p3, h3, l3)
#undef STEP
        }
        const __m128i bias = _mm_loadu_si128((const __m128i *)(t->bias + 4 * i));
        const size_t place = 3 * (size_t)i;
        finish_pixel(h0, l0, bias, outs[0] + place);
        finish_pixel(h1, l1, bias, outs[1] + place);
        finish_pixel(h2, l2, bias, outs[2] + place);
        finish_pixel(h3, l3, bias, outs[3] + place);
    }
}
#endif

static int has_avx2(void) {
#ifdef HAVE_AVX2
    return use_vectors && __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

/* Rows that all have SLACK bytes behind them, into rows that have SLACK bytes too. */
static void across(const Taps *t, const uint8_t *const *rows, int count, int base, uint8_t *out, size_t stride) {
    int y = 0;
#ifdef HAVE_AVX2
    if (has_avx2()) {
        for (; y + 4 <= count; y += 4) {
            uint8_t *const outs[4] = {out + y * stride, out + (y + 1) * stride, out + (y + 2) * stride,
                                      out + (y + 3) * stride};
            across_avx2_4(t, rows + y, base, outs);
        }
        for (; y < count; y++) across_avx2_1(t, rows[y], base, out + y * stride);
        return;
    }
#endif
#ifdef HAVE_NEON
    if (use_vectors) {
        for (; y < count; y++) across_neon(t, rows[y], base, out + y * stride);
        return;
    }
#endif
    for (; y < count; y++) across_portable(t, rows[y], base, out + y * stride);
}

/* --------------------------------------------- down: over several rows */

static void down_portable(const int32_t *k, const uint8_t *const *rows, int count, const int32_t bias[3], size_t begin,
                          size_t end, uint8_t *out) {
    enum { BLOCK = 768 };
    int32_t sums[BLOCK];
    for (size_t x = begin; x < end; x += BLOCK) {
        const size_t many = end - x < BLOCK ? end - x : BLOCK;
        for (size_t i = 0; i < many; i++) sums[i] = bias[(x + i) % 3];
        for (int n = 0; n < count; n++) {
            const uint8_t *row = rows[n] + x;
            const int32_t weight = k[n];
            for (size_t i = 0; i < many; i++) sums[i] += weight * row[i];
        }
        for (size_t i = 0; i < many; i++) out[x + i] = clip8(sums[i]);
    }
}

#ifdef HAVE_AVX2
/* Bytes [begin, end) of the output, whole blocks of 32; no bias but the rounding. Returns where it stopped. */
__attribute__((target("avx2"))) static size_t down_avx2(const int16_t *kh, const int16_t *kl, const uint8_t *const *rows,
                                                        int count, size_t end, uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(HALF);
    size_t x = 0;
    for (; x + 32 <= end; x += 32) {
        __m256i h0 = zero, h1 = zero, h2 = zero, h3 = zero, l0 = half, l1 = half, l2 = half, l3 = half;
        for (int n = 0; n < count; n += 2) {
            const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[n] + x));
            const __m256i b = n + 1 < count ? _mm256_loadu_si256((const __m256i *)(rows[n + 1] + x)) : zero;
            int32_t h_pair, l_pair;
            memcpy(&h_pair, kh + n, sizeof h_pair);
            memcpy(&l_pair, kl + n, sizeof l_pair);
            const __m256i h = _mm256_set1_epi32(h_pair), l = _mm256_set1_epi32(l_pair);
            const __m256i lower = _mm256_unpacklo_epi8(a, b), upper = _mm256_unpackhi_epi8(a, b);
            const __m256i p0 = _mm256_unpacklo_epi8(lower, zero), p1 = _mm256_unpackhi_epi8(lower, zero);
            const __m256i p2 = _mm256_unpacklo_epi8(upper, zero), p3 = _mm256_unpackhi_epi8(upper, zero);
            h0 = _mm256_add_epi32(h0, _mm256_madd_epi16(p0, h));
            h1 = _mm256_add_epi32(h1, _mm256_madd_epi16(p1, h));
            h2 = _mm256_add_epi32(h2, _mm256_madd_epi16(p2, h));
            h3 = _mm256_add_epi32(h3, _mm256_madd_epi16(p3, h));
            l0 = _mm256_add_epi32(l0, _mm256_madd_epi16(p0, l));
            l1 = _mm256_add_epi32(l1, _mm256_madd_epi16(p1, l));
            l2 = _mm256_add_epi32(l2, _mm256_madd_epi16(p2, l));
            l3 = _mm256_add_epi32(l3, _mm256_madd_epi16(p3, l));
        }
#define SUM(H, L) _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(H, 11), L), PRECISION)
        const __m256i lower = _mm256_packs_epi32(SUM(h0, l0), SUM(h1, l1));
        const __m256i upper = _mm256_packs_epi32(SUM(h2, l2), SUM(h3, l3));
#undef SUM
        _mm256_storeu_si256((__m256i *)(out + x), _mm256_packus_epi16(lower, upper));
    }
    return x;
}
#endif

/* One output row, `bytes` long, from rows[0..count) with the taps of output i. */
static void down(const Taps *t, int i, const uint8_t *const *rows, size_t bytes, uint8_t *out) {
    const size_t place = (size_t)i * t->width;
    const int32_t *bias = t->bias + 4 * i;
    size_t done = 0;
#ifdef HAVE_AVX2
    if (has_avx2() && bias[0] == HALF && bias[1] == HALF && bias[2] == HALF)
        done = down_avx2(t->high + place, t->low + place, rows, t->count[i], bytes, out);
#endif
    down_portable(t->coefficients + place, rows, t->count[i], bias, done, bytes, out);
}

/* ------------------------------------------------------------------ output */

typedef struct {
    char *data;
    Py_ssize_t row, column, channel; /* strides in bytes */
    int itemsize;
    const char *table; /* [3][256] items, or NULL for the bytes themselves */
} Output;

#ifdef HAVE_AVX2
__attribute__((target("avx2"))) static int emit_planes_avx2(const uint8_t *row, int width, const float *table,
                                                            float *r, float *g, float *b) {
    const __m128i r0 = _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i r1 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i g0 = _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i g1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i b0 = _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i b1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    int x = 0;
    for (; x + 8 <= width; x += 8) {
        const __m128i first = _mm_loadu_si128((const __m128i *)(row + 3 * (size_t)x));
        const __m128i second = _mm_loadu_si128((const __m128i *)(row + 3 * (size_t)x + 8));
#define PLANE(A, B, TABLE, OUT)                                                                                \
    _mm256_storeu_ps(OUT + x, _mm256_i32gather_ps(TABLE,                                                        \
                                                  _mm256_cvtepu8_epi32(_mm_or_si128(_mm_shuffle_epi8(first, A), \
                                                                                    _mm_shuffle_epi8(second, B))), \
                                                  4));
        PLANE(r0, r1, table, r)
        PLANE(g0, g1, table + 256, g)
        PLANE(b0, b1, table + 512, b)
#undef PLANE
    }
    return x;
}
#endif

/* `width` pixels of a row -> the output, from column `x` of row `y` on. `row` has SLACK bytes behind it. */
static void emit(const Output *o, const uint8_t *row, int y, int x, int width) {
    char *at = o->data + y * o->row + x * o->column;
    int done = 0;
    if (o->table == NULL && o->column == 3 && o->channel == 1) {
        memcpy(at, row, 3 * (size_t)width);
        return;
    }
#ifdef HAVE_AVX2
    if (o->itemsize == 4 && o->column == 4 && o->table != NULL && has_avx2() &&
        ((uintptr_t)at | (uintptr_t)o->channel) % sizeof(float) == 0)
        done = emit_planes_avx2(row, width, (const float *)o->table, (float *)at, (float *)(at + o->channel),
                                (float *)(at + 2 * o->channel));
#endif
    for (int c = 0; c < 3; c++) {
        char *to = at + c * o->channel + done * o->column;
        const char *table = o->table ? o->table + (size_t)c * 256 * o->itemsize : NULL;
        const uint8_t *from = row + 3 * (size_t)done + c;
        for (int n = done; n < width; n++, from += 3, to += o->column) {
            if (table == NULL)
                *to = (char)*from;
            else if (o->itemsize == 4)
                memcpy(to, table + 4 * (size_t)*from, 4);
            else if (o->itemsize == 2)
                memcpy(to, table + 2 * (size_t)*from, 2);
            else
                *to = table[*from];
        }
    }
}

/* ---------------------------------------------------------------- the whole */

typedef struct {
    const uint8_t *source;
    Py_ssize_t stride;
    int height, width;                             /* of the source */
    int pad_top, pad_left, full_height, full_width; /* where it lies in the padded picture */
    int resized_height, resized_width;
    int top, left, out_height, out_width; /* the window of the resized picture that is written */
    int filter, vertical_first;
    uint8_t pad[3];
} Job;

typedef struct {
    uint8_t *data;
    size_t stride;
    const uint8_t **rows;
} Rows;

static int new_rows(Rows *r, size_t count, size_t bytes) {
    r->stride = (bytes + SLACK + 31) / 32 * 32;
    r->data = count && r->stride > SIZE_MAX / 2 / count ? NULL : malloc(count * r->stride + SLACK);
    r->rows = malloc((count ? count : 1) * sizeof *r->rows);
    if (!r->data || !r->rows) return -1;
    for (size_t y = 0; y < count; y++) r->rows[y] = r->data + y * r->stride;
    return 0;
}

static void free_rows(Rows *r) {
    free(r->data);
    free((void *)r->rows);
    memset(r, 0, sizeof *r);
}

/* Pointers to the source's rows [begin, end) from column `left` on; a row without SLACK behind it is copied. */
static int source_rows(const Job *j, int begin, int end, int left, int width, Rows *copies, const uint8_t **rows) {
    const uint8_t *limit = j->source + (size_t)(j->height - 1) * j->stride + 3 * (size_t)j->width;
    const size_t bytes = 3 * (size_t)width;
    int tight = 0;
    for (int y = end - 1; y >= begin; y--) {
        const uint8_t *row = j->source + (size_t)y * j->stride + 3 * (size_t)left;
        if ((size_t)(limit - row) >= bytes + SLACK) break;
        tight++;
    }
    if (new_rows(copies, (size_t)tight, bytes)) return -1;
    for (int y = begin; y < end; y++) {
        const uint8_t *row = j->source + (size_t)y * j->stride + 3 * (size_t)left;
        const int copy = y - (end - tight);
        if (copy >= 0) {
            memcpy(copies->data + copy * copies->stride, row, bytes);
            memset(copies->data + copy * copies->stride + bytes, 0, SLACK);
            row = copies->data + copy * copies->stride;
        }
        rows[y - begin] = row;
    }
    return 0;
}

static void fill(uint8_t *row, int pixels, const uint8_t colour[3]) {
    for (int x = 0; x < pixels; x++) memcpy(row + 3 * (size_t)x, colour, 3);
}

static void emit_rows(const Output *o, const uint8_t *const *rows, int count, int y, int x, int width) {
    for (int i = 0; i < count; i++) emit(o, rows[i], y + i, x, width);
}

/* Down first, then across; there is no padding. */
static int down_first(const Output *o, const Taps *h, const Taps *v, const uint8_t *const *rows, int y, int x) {
    const int wide = h->highest - h->lowest;
    Rows middle = {0}, last = {0};
    int failed = -1;
    if (!new_rows(&middle, (size_t)v->outputs, 3 * (size_t)wide) &&
        !new_rows(&last, (size_t)v->outputs, 3 * (size_t)h->outputs)) {
        for (int i = 0; i < v->outputs; i++) {
            uint8_t *row = middle.data + (size_t)i * middle.stride;
            down(v, i, rows + (v->first[i] - v->lowest), 3 * (size_t)wide, row);
            memset(row + 3 * (size_t)wide, 0, SLACK);
        }
        across(h, middle.rows, v->outputs, h->lowest, last.data, last.stride);
        emit_rows(o, last.rows, v->outputs, y, x, h->outputs);
        failed = 0;
    }
    free_rows(&middle);
    free_rows(&last);
    return failed;
}

/* Across first where there is something to do across, then down where there is something to do down. `h` and `v` may
 * be NULL for nothing to do. Virtual rows [r0, r1), of which the source has those from pad_top on. */
static int across_first(const Job *j, const Output *o, const Taps *h, const Taps *v, const uint8_t *const *rows, int real,
                        int r0, int r1, int columns, int y, int x) {
    const size_t bytes = 3 * (size_t)columns;
    const uint8_t **all = malloc((size_t)(r1 - r0) * sizeof *all);
    Rows middle = {0}, single = {0};
    int failed = -1;
    if (!all || new_rows(&single, 2, bytes) || new_rows(&middle, h ? (size_t)real : 0, bytes)) goto done;
    uint8_t *padding = single.data, *line = single.data + single.stride;
    fill(padding, columns, j->pad);
    memset(padding + bytes, 0, SLACK);
    if (h) {
        across(h, rows, real, h->lowest, middle.data, middle.stride);
        for (int i = 0; i < columns; i++) {
            int64_t inside = 0;
            for (int n = 0; n < h->count[i]; n++) inside += h->coefficients[(size_t)i * h->width + n];
            for (int c = 0; c < 3; c++)
                padding[3 * (size_t)i + c] = clip8((int32_t)(inside * j->pad[c] + h->bias[4 * i + c]));
        }
        rows = middle.rows;
    }
    const int first = r0 > j->pad_top ? r0 : j->pad_top;
    for (int r = r0; r < r1; r++) all[r - r0] = r >= first && r < first + real ? rows[r - first] : padding;
    if (v) {
        for (int i = 0; i < v->outputs; i++) {
            down(v, i, all + (v->first[i] - r0), bytes, line);
            emit(o, line, y + i, x, columns);
        }
    } else {
        emit_rows(o, all, r1 - r0, y, x, columns);
    }
    failed = 0;
done:
    free((void *)all);
    free_rows(&middle);
    free_rows(&single);
    return failed;
}

/* The rows [y0, y1) and columns [x0, x1) of the resized picture, none of them empty, to (y, x) of the output. */
static int render_window(const Job *j, const Output *o, int y0, int y1, int x0, int x1, int y, int x) {
    static const uint8_t none[3] = {0, 0, 0};
    const int wide = j->resized_width != j->full_width, tall = j->resized_height != j->full_height;
    const int padded_across = j->full_width != j->width;
    Taps h = {0}, v = {0};
    Rows copies = {0};
    const uint8_t **rows = NULL;
    int failed = -1;
    if ((wide || padded_across) && make_taps(&h, wide ? j->filter : 0, j->full_width, j->resized_width, x0, x1, j->pad_left,
                                             j->width, j->pad))
        goto done;
    if (tall && make_taps(&v, j->filter, j->full_height, j->resized_height, y0, y1, 0, j->full_height, none)) goto done;
    const int r0 = tall ? v.lowest : y0, r1 = tall ? v.highest : y1;
    const int c0 = wide || padded_across ? h.lowest : x0, c1 = wide || padded_across ? h.highest : x1;
    const int begin = r0 > j->pad_top ? r0 : j->pad_top;
    const int end = r1 < j->pad_top + j->height ? r1 : j->pad_top + j->height;
    const int real = end > begin ? end - begin : 0;
    rows = malloc((size_t)(real ? real : 1) * sizeof *rows);
    if (!rows || (real && source_rows(j, begin - j->pad_top, end - j->pad_top, c0, c1 - c0, &copies, rows))) goto done;
    if (wide && tall && j->vertical_first)
        failed = down_first(o, &h, &v, rows, y, x);
    else
        failed = across_first(j, o, wide || padded_across ? &h : NULL, tall ? &v : NULL, rows, real, r0, r1, x1 - x0, y, x);
done:
    free_taps(&h);
    free_taps(&v);
    free_rows(&copies);
    free((void *)rows);
    return failed;
}

/* The whole picture with its padding in memory: for the rare case of down first with padding. */
static int render_padded(const Job *j, const Output *o, int y0, int y1, int x0, int x1, int y, int x) {
    const size_t stride = 3 * (size_t)j->full_width;
    if (stride > SIZE_MAX / 2 / (size_t)j->full_height) return -1;
    uint8_t *whole = malloc(stride * (size_t)j->full_height);
    if (!whole) return -1;
    for (int row = 0; row < j->full_height; row++) fill(whole + row * stride, j->full_width, j->pad);
    for (int row = 0; row < j->height; row++)
        memcpy(whole + (size_t)(row + j->pad_top) * stride + 3 * (size_t)j->pad_left, j->source + row * j->stride,
               3 * (size_t)j->width);
    Job plain = *j;
    plain.source = whole;
    plain.stride = (Py_ssize_t)stride;
    plain.height = j->full_height;
    plain.width = j->full_width;
    plain.pad_top = plain.pad_left = 0;
    const int failed = render_window(&plain, o, y0, y1, x0, x1, y, x);
    free(whole);
    return failed;
}

static int render(const Job *j, const Output *o) {
    const int y0 = j->top > 0 ? j->top : 0, x0 = j->left > 0 ? j->left : 0;
    const int y1 = j->top + j->out_height < j->resized_height ? j->top + j->out_height : j->resized_height;
    const int x1 = j->left + j->out_width < j->resized_width ? j->left + j->out_width : j->resized_width;
    const int inside = y1 > y0 && x1 > x0;
    if (!inside || y1 - y0 < j->out_height || x1 - x0 < j->out_width) {
        /* What the window has beyond the resized picture is black. */
        uint8_t *black = calloc(3 * (size_t)j->out_width + SLACK, 1);
        if (!black) return -1;
        for (int y = 0; y < j->out_height; y++) emit(o, black, y, 0, j->out_width);
        free(black);
    }
    if (!inside) return 0;
    const int padded = j->full_height != j->height || j->full_width != j->width;
    return (padded && j->vertical_first ? render_padded : render_window)(j, o, y0, y1, x0, x1, y0 - j->top, x0 - j->left);
}

/* -------------------------------------------------------------- perturbing */

#ifdef HAVE_AVX2
/* Eight pixels from three channels of eight sums each, clipped; 24 bytes are written. */
__attribute__((target("avx2"))) static inline void store_pixels(const __m256i sum[3], uint8_t *out) {
    const __m256i together = _mm256_setr_epi8(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, -1, -1, -1, -1, /* lower */
                                              0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, -1, -1, -1, -1);
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[2]));
    const __m256i mixed = _mm256_shuffle_epi8(bytes, together);
    const __m128i upper = _mm256_extracti128_si256(mixed, 1);
    const int32_t end = _mm_extract_epi32(upper, 2);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(mixed));
    _mm_storel_epi64((__m128i *)(out + 12), upper);
    memcpy(out + 20, &end, 4);
}
#endif

/* Truncated and clipped: (matrix x rgb + offset) / 16384, matrix [3][4] row by row; all but the offsets fit 16 bits. */
static void colour_matrix_portable(const uint8_t *in, uint8_t *out, size_t pixels, const int32_t m[12]) {
    for (size_t i = 0; i < pixels; i++, in += 3, out += 3) {
        const int32_t r = in[0], g = in[1], b = in[2];
        for (int c = 0; c < 3; c++) {
            const int32_t value = (m[4 * c] * r + m[4 * c + 1] * g + m[4 * c + 2] * b + m[4 * c + 3]) >> 14;
            out[c] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
        }
    }
}

#ifdef HAVE_AVX2
/* Eight pixels at a time; returns how many are done. `in` and `out` may be the same. */
__attribute__((target("avx2"))) static size_t colour_matrix_avx2(const uint8_t *in, uint8_t *out, size_t pixels,
                                                                 const int32_t m[12]) {
    const __m256i red_green = _mm256_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1, /* lower */
                                               4, -1, 5, -1, 7, -1, 8, -1, 10, -1, 11, -1, 13, -1, 14, -1);
    const __m256i blue = _mm256_setr_epi8(2, -1, -1, -1, 5, -1, -1, -1, 8, -1, -1, -1, 11, -1, -1, -1, /* lower */
                                          6, -1, -1, -1, 9, -1, -1, -1, 12, -1, -1, -1, 15, -1, -1, -1);
    __m256i rg[3], b[3], offset[3], sum[3];
    for (int c = 0; c < 3; c++) {
        rg[c] = _mm256_set1_epi32((int)(((uint32_t)m[4 * c + 1] << 16) | ((uint32_t)m[4 * c] & 0xffff)));
        b[c] = _mm256_set1_epi32((int)((uint32_t)m[4 * c + 2] & 0xffff));
        offset[c] = _mm256_set1_epi32(m[4 * c + 3]);
    }
    size_t i = 0;
    for (; i + 8 <= pixels; i += 8, in += 24, out += 24) {
        const __m128i first = _mm_loadu_si128((const __m128i *)in), second = _mm_loadu_si128((const __m128i *)(in + 8));
        const __m256i both = _mm256_set_m128i(second, first);
        const __m256i pairs = _mm256_shuffle_epi8(both, red_green), single = _mm256_shuffle_epi8(both, blue);
        for (int c = 0; c < 3; c++)
            sum[c] = _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(_mm256_madd_epi16(pairs, rg[c]),
                                                                         _mm256_madd_epi16(single, b[c])),
                                                        offset[c]),
                                       14);
        store_pixels(sum, out);
    }
    return i;
}
#endif

static void colour_matrix(const uint8_t *in, uint8_t *out, size_t pixels, const int32_t m[12]) {
    size_t done = 0;
#ifdef HAVE_AVX2
    if (has_avx2()) done = colour_matrix_avx2(in, out, pixels, m);
#endif
    colour_matrix_portable(in + 3 * done, out + 3 * done, pixels - done, m);
}

/* out = in + floor(matrix x noise / 65536), noise = table of one word a pixel from each third of `words`. */
static void coloured_noise_portable(const uint8_t *in, uint8_t *out, size_t begin, size_t pixels, const uint16_t *words,
                                    const int16_t *table, const int32_t m[9]) {
    for (size_t i = begin; i < pixels; i++) {
        const int32_t y = table[words[i]], u = table[words[pixels + i]], v = table[words[2 * pixels + i]];
        for (int c = 0; c < 3; c++) {
            const int32_t value = in[3 * i + c] + ((m[3 * c] * y + m[3 * c + 1] * u + m[3 * c + 2] * v) >> 16);
            out[3 * i + c] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
        }
    }
}

#ifdef HAVE_AVX2
/* Eight table entries; the gather reads two bytes beyond each, so the table has one entry more than it needs. */
__attribute__((target("avx2"))) static inline __m256i look_up(const int16_t *table, const uint16_t *words) {
    const __m256i places = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)words));
    const __m256i found = _mm256_i32gather_epi32((const int *)table, places, 2);
    return _mm256_srai_epi32(_mm256_slli_epi32(found, 16), 16);
}

__attribute__((target("avx2"))) static size_t coloured_noise_avx2(const uint8_t *in, uint8_t *out, size_t pixels,
                                                                  const uint16_t *words, const int16_t *table,
                                                                  const int32_t m[9]) {
    size_t i = 0;
    for (; i + 8 <= pixels; i += 8, in += 24, out += 24) {
        const __m128i first = _mm_loadu_si128((const __m128i *)in), second = _mm_loadu_si128((const __m128i *)(in + 8));
        const __m256i both = _mm256_set_m128i(second, first);
        const __m256i y = look_up(table, words + i), u = look_up(table, words + pixels + i);
        const __m256i v = look_up(table, words + 2 * pixels + i);
        __m256i sum[3];
        for (int c = 0; c < 3; c++) {
            const char k = (char)c;
            const __m256i pick = _mm256_setr_epi8(k, -1, -1, -1, k + 3, -1, -1, -1, k + 6, -1, -1, -1, k + 9, -1, -1, -1,
                                                  k + 4, -1, -1, -1, k + 7, -1, -1, -1, k + 10, -1, -1, -1, k + 13, -1, -1, -1);
            const __m256i a = _mm256_mullo_epi32(y, _mm256_set1_epi32(m[3 * c]));
            const __m256i b = _mm256_mullo_epi32(u, _mm256_set1_epi32(m[3 * c + 1]));
            const __m256i d = _mm256_mullo_epi32(v, _mm256_set1_epi32(m[3 * c + 2]));
            const __m256i added = _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(a, b), d), 16);
            sum[c] = _mm256_add_epi32(_mm256_shuffle_epi8(both, pick), added);
        }
        store_pixels(sum, out);
    }
    return i;
}
#endif

static void coloured_noise(const uint8_t *in, uint8_t *out, size_t pixels, const uint16_t *words, const int16_t *table,
                           const int32_t m[9]) {
    size_t done = 0;
#ifdef HAVE_AVX2
    if (has_avx2()) done = coloured_noise_avx2(in, out, pixels, words, table, m);
#endif
    coloured_noise_portable(in, out, done, pixels, words, table, m);
}

/* ------------------------------------------------------------------ Python */

static int in_range(const char *name, long value, long low, long high) {
    if (value >= low && value <= high) return 1;
    PyErr_Format(PyExc_ValueError, "%s is %ld, not %ld to %ld", name, value, low, high);
    return 0;
}

/* A uint8 picture [height, width, 3] whose rows may be apart. */
static int check_picture(const Py_buffer *b, const char *name) {
    if (b->ndim != 3 || b->itemsize != 1 || b->shape[2] != 3 || b->strides[2] != 1 || b->strides[1] != 3 ||
        b->strides[0] < 3 * b->shape[1]) {
        PyErr_Format(PyExc_ValueError, "%s must be uint8 [height, width, 3] with whole rows", name);
        return 0;
    }
    return in_range("height", (long)b->shape[0], 1, LIMIT) && in_range("width", (long)b->shape[1], 1, LIMIT);
}

static int check_output(const Py_buffer *b, int planes, Output *o, int *height, int *width) {
    const int c = planes ? 0 : 2, y = planes ? 1 : 0, x = planes ? 2 : 1;
    if (b->ndim != 3 || b->shape[c] != 3 || (b->itemsize != 1 && b->itemsize != 2 && b->itemsize != 4)) {
        PyErr_SetString(PyExc_ValueError, "out must be [3, height, width] or [height, width, 3] of 1, 2 or 4 bytes");
        return 0;
    }
    for (int k = 0; k < 3; k++) {
        if (b->strides[k] < b->itemsize) {
            PyErr_SetString(PyExc_ValueError, "out must have positive strides");
            return 0;
        }
    }
    o->data = b->buf;
    o->channel = b->strides[c];
    o->row = b->strides[y];
    o->column = b->strides[x];
    o->itemsize = (int)b->itemsize;
    if (!in_range("out height", (long)b->shape[y], 1, LIMIT) || !in_range("out width", (long)b->shape[x], 1, LIMIT)) return 0;
    *height = (int)b->shape[y];
    *width = (int)b->shape[x];
    return 1;
}

PyDoc_STRVAR(render_doc,
             "render(source, out, table, planes, resized, corner, full, place, pad, filter, vertical_first)\n\n"
             "source uint8 [h, w, 3]; out [3, H, W] (planes) or [H, W, 3]; table of 768 items of out's size or None;\n"
             "resized, corner, full, place: (rows, columns); pad: (r, g, b). The source lies at `place` in a picture of\n"
             "size `full` filled with `pad`; that is resized to `resized`, and its window from `corner` on is written.");

static PyObject *py_render(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *source_object, *out_object, *table_object;
    const char *filter;
    int planes, vertical_first;
    int resized[2], corner[2], full[2], place[2], pad[3];
    if (!PyArg_ParseTuple(args, "OOOp(ii)(ii)(ii)(ii)(iii)sp", &source_object, &out_object, &table_object, &planes,
                          &resized[0], &resized[1], &corner[0], &corner[1], &full[0], &full[1], &place[0], &place[1],
                          &pad[0], &pad[1], &pad[2], &filter, &vertical_first))
        return NULL;
    Py_buffer source = {0}, out = {0}, table = {0};
    Job job = {0};
    Output output = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(source_object, &source, PyBUF_STRIDES)) return NULL;
    if (PyObject_GetBuffer(out_object, &out, PyBUF_STRIDES | PyBUF_WRITABLE)) goto done;
    if (!check_picture(&source, "source") || !check_output(&out, planes, &output, &job.out_height, &job.out_width)) goto done;
    if (table_object != Py_None) {
        if (PyObject_GetBuffer(table_object, &table, PyBUF_C_CONTIGUOUS)) goto done;
        if (table.len != 768 * (Py_ssize_t)output.itemsize || (uintptr_t)table.buf % 4) {
            PyErr_SetString(PyExc_ValueError, "table must hold 3 x 256 aligned items of out's size");
            goto done;
        }
        output.table = table.buf;
    } else if (output.itemsize != 1) {
        PyErr_SetString(PyExc_ValueError, "without a table out must be of 1 byte");
        goto done;
    }
    job.filter = -1;
    for (int k = 0; k < (int)(sizeof FILTERS / sizeof *FILTERS); k++)
        if (!strcmp(filter, FILTERS[k].name)) job.filter = k;
    if (job.filter < 0) {
        PyErr_Format(PyExc_ValueError, "unknown filter %s", filter);
        goto done;
    }
    job.source = source.buf;
    job.stride = source.strides[0];
    job.height = (int)source.shape[0];
    job.width = (int)source.shape[1];
    if (!in_range("full rows", full[0], job.height, LIMIT) || !in_range("full columns", full[1], job.width, LIMIT) ||
        !in_range("place row", place[0], 0, full[0] - job.height) ||
        !in_range("place column", place[1], 0, full[1] - job.width) || !in_range("resized rows", resized[0], 1, LIMIT) ||
        !in_range("resized columns", resized[1], 1, LIMIT) || !in_range("corner row", corner[0], -LIMIT, LIMIT) ||
        !in_range("corner column", corner[1], -LIMIT, LIMIT))
        goto done;
    for (int c = 0; c < 3; c++) {
        if (!in_range("pad", pad[c], 0, 255)) goto done;
        job.pad[c] = (uint8_t)pad[c];
    }
    job.full_height = full[0], job.full_width = full[1];
    job.pad_top = place[0], job.pad_left = place[1];
    job.resized_height = resized[0], job.resized_width = resized[1];
    job.top = corner[0], job.left = corner[1];
    job.vertical_first = vertical_first;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = render(&job, &output);
    Py_END_ALLOW_THREADS
    if (failed) {
        PyErr_NoMemory();
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    if (source.obj) PyBuffer_Release(&source);
    if (out.obj) PyBuffer_Release(&out);
    if (table.obj) PyBuffer_Release(&table);
    return result;
}

/* A picture in, a picture out of the same size, both in one piece; and a buffer of `items` numbers of `size` bytes. */
static int get_pair(PyObject *in, PyObject *out, Py_buffer *a, Py_buffer *b) {
    if (PyObject_GetBuffer(in, a, PyBUF_C_CONTIGUOUS)) return 0;
    if (PyObject_GetBuffer(out, b, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) return 0;
    if (a->itemsize != 1 || b->itemsize != 1 || a->len != b->len || a->len % 3) {
        PyErr_SetString(PyExc_ValueError, "in and out must be uint8 pictures of one size");
        return 0;
    }
    return 1;
}

static int get_numbers(PyObject *object, Py_buffer *b, Py_ssize_t items, Py_ssize_t size, const char *name) {
    if (PyObject_GetBuffer(object, b, PyBUF_C_CONTIGUOUS)) return 0;
    if (b->itemsize != size || b->len < items * size || (uintptr_t)b->buf % (uintptr_t)size) {
        PyErr_Format(PyExc_ValueError, "%s must hold %zd aligned items of %zd bytes", name, items, size);
        return 0;
    }
    return 1;
}

PyDoc_STRVAR(colour_doc, "colour_matrix(in, out, matrix): out = (matrix[3][4] x (r, g, b, 1)) >> 14, clipped; int32.");

static PyObject *py_colour_matrix(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *in_object, *out_object, *matrix_object, *result = NULL;
    if (!PyArg_ParseTuple(args, "OOO", &in_object, &out_object, &matrix_object)) return NULL;
    Py_buffer in = {0}, out = {0}, matrix = {0};
    if (get_pair(in_object, out_object, &in, &out) && get_numbers(matrix_object, &matrix, 12, 4, "matrix")) {
        const int32_t *m = matrix.buf;
        int fine = 1;
        for (int k = 0; k < 12; k++) fine = fine && (k % 4 == 3 ? in_range("offset", m[k], -(1 << 28), 1 << 28) : in_range("matrix", m[k], -32767, 32767));
        if (fine) {
            Py_BEGIN_ALLOW_THREADS
            colour_matrix(in.buf, out.buf, (size_t)in.len / 3, m);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        }
    }
    if (in.obj) PyBuffer_Release(&in);
    if (out.obj) PyBuffer_Release(&out);
    if (matrix.obj) PyBuffer_Release(&matrix);
    return result;
}

PyDoc_STRVAR(noise_doc,
             "coloured_noise(in, out, words, table, matrix): out = in + (matrix[3][3] x table[words]) >> 16, clipped;\n"
             "words uint16 [3][pixels]; table int16 [65536 + 1]; matrix int32.");

static PyObject *py_coloured_noise(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *in_object, *out_object, *words_object, *table_object, *matrix_object, *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO", &in_object, &out_object, &words_object, &table_object, &matrix_object)) return NULL;
    Py_buffer in = {0}, out = {0}, words = {0}, table = {0}, matrix = {0};
    if (get_pair(in_object, out_object, &in, &out) && get_numbers(words_object, &words, in.len, 2, "words") &&
        get_numbers(table_object, &table, 65537, 2, "table") && get_numbers(matrix_object, &matrix, 9, 4, "matrix")) {
        const int32_t *m = matrix.buf;
        int fine = 1;
        for (int k = 0; k < 9; k++) fine = fine && in_range("matrix", m[k], -20000, 20000);
        if (fine) {
            Py_BEGIN_ALLOW_THREADS
            coloured_noise(in.buf, out.buf, (size_t)in.len / 3, words.buf, table.buf, m);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        }
    }
    if (in.obj) PyBuffer_Release(&in);
    if (out.obj) PyBuffer_Release(&out);
    if (words.obj) PyBuffer_Release(&words);
    if (table.obj) PyBuffer_Release(&table);
    if (matrix.obj) PyBuffer_Release(&matrix);
    return result;
}

PyDoc_STRVAR(vectors_doc, "vectors(on): use vector instructions where there are any; returns the name of those in use.");

static PyObject *py_vectors(PyObject *self, PyObject *args) {
    (void)self;
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
    use_vectors = on;
#ifdef HAVE_NEON
    return PyUnicode_FromString(on ? "NEON" : "portable");
#else
    return PyUnicode_FromString(has_avx2() ? "AVX2" : "portable");
#endif
}

static PyMethodDef METHODS[] = {
    {"render", py_render, METH_VARARGS, render_doc},
    {"colour_matrix", py_colour_matrix, METH_VARARGS, colour_doc},
    {"coloured_noise", py_coloured_noise, METH_VARARGS, noise_doc},
    {"vectors", py_vectors, METH_VARARGS, vectors_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_pixels", "Pixels in one pass; see _pixels.c.", -1, METHODS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__pixels(void) { return PyModule_Create(&MODULE); }
