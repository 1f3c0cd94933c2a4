// Forward norms: y = (x - mu) * rsigma * gamma + beta of a layer norm, x * rsigma * gamma of an RMS
// norm, where x may be the sum of two tensors, which is then written too.
//
// A row is read once and stays in registers as floats; y is made of the sum before it is rounded.
// Sums are taken of numbers near zero: of a layer norm about a first mean m, which may be off by
// its rounding, and then d = x - m has a mean and squares that lose nothing however far from zero
// the row lies. Squares of floats overflow and underflow long before the row does: a row of which
// that is true is done again, multiplied by a power of two.
//
// A kernel that is kLayer does both norms: an RMS norm is one whose mean nobody wants (mu is null)
// and counts as 0. Rows that are common have kernels of their own for it.
#pragma once

#include "loose.cuh"

namespace norms {

// What a launch is given. rows are counted in int64, columns in int.
template <typename T>
struct ForwardCall {
  T* y;
  float* mu;  // of a layer norm; null of an RMS norm
  float* rsigma;
  T* sum;  // x + residual, where there is a residual
  const T* x;
  const T* residual;
  const void* gamma;
  const void* beta;  // of a layer norm, or null
  float epsilon;
  float center;  // is added to gamma
  bool wide;     // gamma and beta are float
  int H;
  int64 rows;

  template <bool kLayer>
  __device__ __forceinline__ bool HasMean() const {
    return kLayer && mu != nullptr;
  }
};

inline constexpr float kTiny = 0x1p-100f, kFromTiny = 0x1p100f, kFromHuge = 0x1p-96f;
inline constexpr float kMostOffset = 4;

// What a row is multiplied by so that its squares neither overflow nor vanish; `mean` is what they
// give without.
__device__ __forceinline__ float FactorFor(float mean) {
  return mean < kTiny ? kFromTiny : mean < Infinity() ? 1.0f : kFromHuge;
}
__device__ __forceinline__ bool NeedsFactor(float mean) {
  return !(mean >= kTiny && mean < Infinity());
}

// y = (d + mine - offset) * inverse * gamma + beta, with d = (x - first) * factor - mine.
struct Moments {
  float factor = 1;   // a power of two
  float first = 0;    // a number near the mean
  float offset = 0;   // what is missing to the mean, times factor
  float mine = 0;     // what this warp's sums were taken about, less `first`
  float inverse = 0;  // 1 / sigma of x * factor

  __device__ __forceinline__ float Centered(float x) const {
    return __fmaf_rn(x, factor, -first * factor);
  }
  __device__ __forceinline__ float Rsigma() const { return inverse * factor; }
  __device__ __forceinline__ float Mu() const {
    const float mu = first + offset / factor;
    return mu == mu ? mu : first;  // of a row with an infinity the rest is NaN
  }
};

// v = v * factor - shift, for the vectors that there are.
template <int VEC, int N>
__device__ __forceinline__ void Move(float (&v)[N][VEC], int left, int size, float factor,
                                     float shift) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i * size >= left) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) v[i][j] = __fmaf_rn(v[i][j], factor, -shift);
  }
}

// The sums of squares and of elements of this thread.
template <bool kLayer, int VEC, int N>
__device__ __forceinline__ void SumOwn(const float (&v)[N][VEC], int left, int size,
                                       float (&sums)[kLayer ? 2 : 1]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i * size >= left) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      sums[0] = __fmaf_rn(v[i][j], v[i][j], sums[0]);
      if constexpr (kLayer) sums[1] += v[i][j];
    }
  }
}

// The mean of the squares of a row, or its variance and m.offset, of what its sums are.
template <bool kLayer>
__device__ __forceinline__ float MeanSquare(const float (&sums)[kLayer ? 2 : 1], float inverse_h,
                                            bool has_mean, Moments& m) {
  const float square = sums[0] * inverse_h;
  if (!has_mean) return square;
  m.offset = sums[kLayer ? 1 : 0] * inverse_h;
  const float variance = square - m.offset * m.offset;
  return variance < 0.0f ? 0.0f : variance;
}

// The mean, but for its rounding.
template <int VEC, int N, typename Team>
__device__ __forceinline__ float MeanOf(const float (&v)[N][VEC], int left, float inverse_h,
                                        Team& team) {
  const int size = team.size();
  float mean[1] = {0};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i * size >= left) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) mean[0] = __fmaf_rn(v[i][j], inverse_h, mean[0]);
  }
  team.Sum(mean);
  return mean[0];
}

// A number near the mean of some elements of this thread, if it has any.
template <int VEC, int N>
__device__ __forceinline__ float GuessOf(const float (&v)[N][VEC], int left, int size) {
  float sum = 0;
  if constexpr (VEC > 1) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) sum += v[0][j];
    return sum * (1.0f / VEC);
  } else {
    constexpr int kSome = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < kSome; ++i) sum += i * size < left ? v[i][0] : v[0][0];
    return sum * (1.0f / kSome);
  }
}

// LoadRow where rows begin anywhere.
template <bool kAgain, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void LoadLooseRow(float (&v)[N][VEC], const ForwardCall<T>& call,
                                             int64 row, int left, const Team& team) {
  LoadLoose<false>(v, call.x, row, call.rows, call.H, left, team);
  if (call.residual == nullptr) return;
  LoadLoose<true>(v, call.residual, row, call.rows, call.H, left, team);
  if constexpr (!kAgain) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      Vector<T, VEC> out;
      out.FromFloats(v[i]);
      StoreLoose(Advance(call.sum, row * call.H), (team.rank() + i * team.size()) * VEC, call.H,
                 out);
    }
  }
}

// The vectors of row `row` of rows[.., H], on their way.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void FetchRow(Vector<T, VEC> (&raw)[N], const T* rows, int64 row, int H,
                                         int left, const Team& team) {
  unsigned rank = team.rank();
  int size = team.size();
  Forget(rank);  // addresses are not kept from one row to the next
  Forget(size);
  const T* first = Advance(rows, row * H + rank * VEC);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    raw[i].Clear();  // set what stays unused too: registers are assigned better
    if (i * size < left) raw[i].template Load<true>(first, i * size);
  }
}

// Of what was fetched of x, plus the residual, floats; the sum is written as it is read, but not
// when it is read again.
template <bool kAgain, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WidenRow(float (&v)[N][VEC], Vector<T, VEC> (&raw)[N],
                                         const ForwardCall<T>& call, int64 row, int left,
                                         const Team& team) {
  if (call.residual == nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i].ToFloats(v[i]);
    return;
  }
  Vector<T, VEC> more[N];
  FetchRow(more, call.residual, row, call.H, left, team);
  const int size = team.size();
  T* sum = Advance(call.sum, row * call.H + team.rank() * VEC);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float r[VEC];
    raw[i].ToFloats(v[i]);
    more[i].ToFloats(r);
#pragma unroll
    for (int j = 0; j < VEC; ++j) v[i][j] += r[j];
    if (kAgain || i * size >= left) continue;
    raw[i].FromFloats(v[i]);
    raw[i].Store(sum, i * size);
  }
}

// Row `row` of x, plus that of the residual, as floats.
template <bool kAgain, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void LoadRow(float (&v)[N][VEC], const ForwardCall<T>& call, int64 row,
                                        int left, const Team& team) {
  if constexpr (Team::kLoose) {
    LoadLooseRow<kAgain>(v, call, row, left, team);
  } else {
    Vector<T, VEC> raw[N];
    FetchRow(raw, call.x, row, call.H, left, team);
    WidenRow<kAgain>(v, raw, call, row, left, team);
  }
}

// A row whose mean is far from what was guessed, or whose squares overflow or vanish: read again,
// its mean found first, and multiplied by a power of two where that is needed. v is d afterwards.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ float MomentsAgain(Moments& m, float (&v)[N][VEC],
                                              const ForwardCall<T>& call, int64 row, int left,
                                              float inverse_h, bool has_mean, Team& team) {
  LoadRow<true, VEC, N>(v, call, row, left, team);
  m.mine = 0.0f;
  m.first = has_mean ? MeanOf(v, left, inverse_h, team) : 0.0f;
  float mean = 0;
#pragma unroll 1
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt != 0) LoadRow<true, VEC, N>(v, call, row, left, team);
    Move(v, left, team.size(), m.factor, m.first * m.factor);
    if constexpr (Team::kLoose) ClearBehind(v, call.H, left, team);
    float sums[kLayer ? 2 : 1] = {};
    SumOwn<kLayer>(v, left, team.size(), sums);
    team.Sum(sums);
    mean = MeanSquare<kLayer>(sums, inverse_h, has_mean, m) + call.epsilon * m.factor * m.factor;
    if (attempt != 0 || !NeedsFactor(mean)) break;
    m.factor = FactorFor(mean);
  }
  return mean;
}

// How many elements a warp of a block has.
template <int VEC, int N>
struct WarpElements {
  int vectors, size;  // of the row; threads

  __device__ __forceinline__ int operator()(int warp) const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += max(0, min(32, vectors - i * size - warp * 32));
    return sum * VEC;
  }
};

// Sums are taken about numbers from among the row's own: where the mean lies close to them, as it
// nearly always does, one exchange of sums gives all.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ Moments MomentsOf(float (&v)[N][VEC], const ForwardCall<T>& call,
                                             int64 row, int left, Team& team) {
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
  const bool has_mean = call.template HasMean<kLayer>();
  Moments m;
  float sums[kLayer ? 2 : 1] = {};
  if constexpr (kLayer) {
    if (has_mean) {
      const float near = GuessOf(v, left, team.size());
      const float guess = team.Guess(Team::kLoose && call.H < VEC ? v[0][0] : near);
      Move(v, left, team.size(), 1.0f, guess);
      if constexpr (Team::kLoose) ClearBehind(v, call.H, left, team);
      SumOwn<true>(v, left, team.size(), sums);
      if constexpr (Team::kLoose) {
        m.first = team.SumAbout(sums, guess, LooseElements<VEC, N>{call.H, team.size()});
      } else {
        m.first = team.SumAbout(sums, guess, WarpElements<VEC, N>{call.H / VEC, team.size()});
      }
      m.mine = guess - m.first;
    }
  }
  if (!has_mean) {
    SumOwn<kLayer>(v, left, team.size(), sums);
    team.Sum(sums);
  }
  float mean = MeanSquare<kLayer>(sums, inverse_h, has_mean, m) + call.epsilon;
  // What cancels in the variance enlarges its rounding 1 + kMostOffset times at most.
  const bool far = has_mean && !(m.offset * m.offset <= kMostOffset * mean);
  if (far || NeedsFactor(mean)) {
    auto&& alone = team.Alone();
    mean = MomentsAgain<kLayer>(m, v, call, row, left, inverse_h, has_mean, alone);
  }
  m.inverse = InverseRoot(mean);
  return m;
}

// y of d by weights g and b. (y may be v or g.)
template <bool kLayer, int VEC>
__device__ __forceinline__ void NormalizeVector(float (&y)[VEC], const float (&v)[VEC],
                                                const float (&g)[VEC], const float (&b)[VEC],
                                                float inverse, float less) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    if constexpr (kLayer) {
      y[j] = __fmaf_rn(__fmaf_rn(v[j], inverse, -less), g[j], b[j]);
    } else {
      y[j] = v[j] * inverse * g[j];
    }
  }
}

// y of a row whose d is in v. Registers are short here: addresses are not kept from one row to the
// next. kPlain: weights are of T and not centered, so that they stay packed until they are used.
template <bool kLayer, bool kPlain, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WriteRow(const ForwardCall<T>& call, int64 row,
                                         const float (&v)[N][VEC], const Moments& m, int left,
                                         const Team& team) {
  unsigned rank = team.rank();
  int size = team.size();
  Forget(rank);
  Forget(size);
  const Weights<T> gamma(call.gamma, rank * VEC, call.wide, call.center);
  const Weights<T> beta(call.beta, rank * VEC, call.wide, 0.0f);
  const float less = kLayer ? (m.offset - m.mine) * m.inverse : 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // Lanes of a warp go on together where they exchange what they store.
    if (i * size >= left + (Team::kLoose ? static_cast<int>(rank % 32) : 0)) continue;
    float g[VEC], b[VEC];
    const int kept = call.H - (static_cast<int>(rank) + i * size) * VEC;
    LoadSomeWeights<kPlain, Team::kLoose>(g, gamma, i * size, kept);
    if (kLayer && call.beta != nullptr) {
      LoadSomeWeights<kPlain, Team::kLoose>(b, beta, i * size, kept);
    } else {
#pragma unroll
      for (int j = 0; j < VEC; ++j) b[j] = 0.0f;
    }
    NormalizeVector<kLayer>(g, v[i], g, b, m.inverse, less);
    Vector<T, VEC> out;
    out.FromFloats(g);
    if constexpr (Team::kLoose) {
      StoreLoose(Advance(call.y, row * call.H), (rank + i * size) * VEC, call.H, out);
    } else {
      out.Store(Advance(call.y, row * call.H + rank * VEC), i * size);
    }
  }
}

// The rows of block `block` of `blocks`, each in the registers of its team.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void ForwardRows(const ForwardCall<T>& call, Team team, int block,
                                            int blocks) {
  const int64 first = block / team.blocks(), step = blocks / team.blocks();
  const int vectors = VectorsOf<VEC, Team>(call.H);
  for (int64 base = first * Team::kRows; base < call.rows; base += step * Team::kRows) {
    const int64 row = base + team.row();
    // Of the row's vectors from this thread's first on: it has those i for which i * size < left.
    const int left = row < call.rows ? vectors - team.rank() : 0;
    const bool has_mean = call.template HasMean<kLayer>();
    float v[N][VEC];
    LoadRow<false, VEC, N>(v, call, row, left, team);
    const Moments m = MomentsOf<kLayer>(v, call, row, left, team);
    if (call.center == 0.0f && (Element<T>::kBytes == 4 || !call.wide)) {
      WriteRow<kLayer, true>(call, row, v, m, left, team);
    } else {
      WriteRow<kLayer, false>(call, row, v, m, left, team);
    }
    if (team.rank() != 0 || row >= call.rows) continue;
    call.rsigma[row] = m.Rsigma();
    if (has_mean) call.mu[row] = m.Mu();
  }
}

}  // namespace norms
