// The nodes of attention, by cuDNN's names: sdpa, sdpa_fp8, sdpa_backward. Included by planner.cc
// alone. Tensors are in [batch, heads, length, features] order with any strides (the last is 1):
//
//   sdpa           q, k, v -> o, and with "stats" the logarithms of the sums, f32 [B, H, SQ, 1]
//   sdpa_backward  q, k, v, o, do, stats -> dq, dk, dv, and with "dbias" the bias's gradient
//   sdpa_fp8       as sdpa, and descale_q, descale_k, descale_v, descale_s, scale_s, scale_o ->
//                  amax_s, amax_o, each f32 [1, 1, 1, 1]
//   both  "scale": {"uid": a scalar that a call gives} or {"value": a part of the plan}
//         "causal": "none", "top_left" (k <= q) or "bottom_right" (k <= q + keys - queries)
//         "window": keys with q - k > window are masked, q moved as `causal` moves it
//         tensor "bias" [B or 1, H or 1, SQ, SKV], added to scores that are scaled and modified
//         tensors "q_lengths" and "kv_lengths", i32 [B, 1, 1, 1], together: the rest is masked
//         "dropout": p, with tensors "dropout_seed" and "dropout_offset", i64 [1, 1, 1, 1]
//         a tensor's "ragged": the name of the tensor of its [B + 1, 1, 1, 1] offsets, in elements
//         "score_mod", "score_mod_backward", "scalars", "score_tensors": see score_mod_nodes.h
//   sdpa_backward  "deterministic"; of ragged tensors "total_q", "total_kv": rows at most in all
#ifndef KBUNDLE_BUILDER_PLANNER_SDPA_NODES_H_
#define KBUNDLE_BUILDER_PLANNER_SDPA_NODES_H_

#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "builder/provider/cudnn/planner/graph.h"
#include "builder/provider/cudnn/planner/score_mod_nodes.h"

namespace kbundle::builder {

struct SdpaSizes {
  int64_t batch, heads, kv_heads, queries, keys, features, value_features;
};

// Of q, k and v, which agree with each other.
inline SdpaSizes SizesOf(Tensors& tensors) {
  const std::vector<int64_t> q = tensors.Input("q")->get_dim(), k = tensors.Input("k")->get_dim(),
                             v = tensors.Input("v")->get_dim();
  const SdpaSizes sizes = {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  if (sizes.heads % sizes.kv_heads != 0) {
    throw Refusal(tensors.request().where() + "k has " + std::to_string(sizes.kv_heads) +
                  " heads, of which q's " + std::to_string(sizes.heads) + " must be a multiple");
  }
  tensors.Expect("k", {{sizes.batch, sizes.kv_heads, sizes.keys, sizes.features}});
  tensors.Expect("v", {{sizes.batch, sizes.kv_heads, sizes.keys, sizes.value_features}});
  return sizes;
}

// Once all are made: those whose dims follow from q, k and v have them.
inline void CheckDims(const Tensors& tensors, const SdpaSizes& s) {
  const std::vector<int64_t> of_q = {s.batch, s.heads, s.queries, s.features};
  const std::vector<int64_t> of_o = {s.batch, s.heads, s.queries, s.value_features};
  const std::vector<int64_t> of_k = {s.batch, s.kv_heads, s.keys, s.features};
  const std::vector<int64_t> of_v = {s.batch, s.kv_heads, s.keys, s.value_features};
  tensors.Expect("o", {of_o});
  tensors.Expect("do", {of_o});
  tensors.Expect("dq", {of_q});
  tensors.Expect("dk", {of_k});
  tensors.Expect("dv", {of_v});
  tensors.Expect("stats", {{s.batch, s.heads, s.queries, 1}});
  for (const char* name : {"bias", "dbias"}) {
    tensors.Expect(name, {{s.batch, s.heads, s.queries, s.keys},
                          {s.batch, 1, s.queries, s.keys},
                          {1, s.heads, s.queries, s.keys},
                          {1, 1, s.queries, s.keys}});
  }
  for (const char* name : {"q_lengths", "kv_lengths"}) tensors.Expect(name, {{s.batch, 1, 1, 1}});
  for (const char* name : {"dropout_seed", "dropout_offset", "descale_q", "descale_k", "descale_v",
                           "descale_s", "scale_s", "scale_o", "amax_s", "amax_o"}) {
    tensors.Expect(name, {{1, 1, 1, 1}});
  }
}

template <typename Options>
void SetScale(Tensors& tensors, Options* options) {
  const Request& request = tensors.request();
  if (!request.Has("scale")) return;
  const std::string means = "{\"uid\": N} or {\"value\": X}";
  const Fields scale = request.Object("scale", means);
  if (scale.Has("uid") == scale.Has("value")) throw Refusal(scale.where() + "must be " + means);
  if (scale.Has("uid")) {
    options->set_attn_scale(tensors.Scalar("scale", scale, "uid"));
  } else {
    // By way of double: the frontend has its own idea of a float in JSON.
    options->set_attn_scale(static_cast<float>(scale.Number("value")));
  }
  scale.RefuseOthers("key");
}

template <typename Options>
void SetDropout(Tensors& tensors, Options* options) {
  const Request& request = tensors.request();
  if (!request.Has("dropout")) return;
  const double probability = request.Number("dropout");
  if (!(probability > 0 && probability < 1)) {
    throw Refusal(request.where() + "\"dropout\" must be between 0 and 1, without either");
  }
  const Tensor seed = tensors.Input("dropout_seed", fe::DataType_t::INT64);
  const Tensor offset = tensors.Input("dropout_offset", fe::DataType_t::INT64);
  options->set_dropout(static_cast<float>(probability), seed, offset);
}

// Which keys a query sees.
struct SdpaMask {
  std::string causal;
  std::optional<int64_t> left;  // keys with q - k >= left are masked
  Tensor q_lengths, kv_lengths;

  fe::DiagonalAlignment_t alignment() const {
    return causal == "bottom_right" ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                    : fe::DiagonalAlignment_t::TOP_LEFT;
  }
};

inline SdpaMask MaskOf(Tensors& tensors) {
  const Request& request = tensors.request();
  SdpaMask mask;
  mask.causal = request.Choice("causal", "none", {"none", "top_left", "bottom_right"});
  if (request.Has("window")) {
    const int64_t window = request.Integer("window", 0);
    if (window >= std::numeric_limits<int32_t>::max()) {
      throw Refusal(request.where() + "\"window\" is " + std::to_string(window) +
                    ", longer than any sequence; leave it out for no window");
    }
    mask.left = window + 1;
  }
  mask.q_lengths = tensors.InputIf("q_lengths", fe::DataType_t::INT32);
  mask.kv_lengths = tensors.InputIf("kv_lengths", fe::DataType_t::INT32);
  if ((mask.q_lengths == nullptr) != (mask.kv_lengths == nullptr)) {
    throw Refusal(request.where() +
                  "cuDNN takes the tensors \"q_lengths\" and \"kv_lengths\" together; give both");
  }
  return mask;
}

// The frontend wants no mask of its own beside a modifier, so the masks follow it, by the
// frontend's own functions, in the frontend's own order.
inline Tensor AddMasks(const std::shared_ptr<fe::graph::Graph>& graph, Tensor score,
                       const SdpaMask& mask, const SdpaSizes& sizes) {
  namespace masks = fe::graph::attn::score_modifiers;
  if (mask.q_lengths != nullptr) {
    score = masks::padding_mask(graph, score, mask.kv_lengths, mask.q_lengths);
  }
  if (mask.causal == "none" && !mask.left) return score;
  const std::optional<int64_t> right = mask.causal == "none" ? std::nullopt : std::optional(0);
  return masks::sliding_window_mask(graph, score, mask.alignment(), mask.left, right, sizes.queries,
                                    sizes.keys, mask.q_lengths, mask.kv_lengths, nullptr, nullptr);
}

// Rows of a ragged tensor end where its lengths say. The frontend knows it of the forward only.
inline void CheckRagged(Tensors& tensors, const SdpaMask& mask) {
  if (mask.q_lengths != nullptr) return;
  for (const char* name : {"q", "k", "v"}) {
    if (tensors.Input(name)->get_ragged_offset() == nullptr) continue;
    throw Refusal(tensors.request().where() + "tensor " + Quoted(name) +
                  " is ragged, which needs the tensors \"q_lengths\" and \"kv_lengths\"");
  }
}

// All that sdpa and sdpa_backward have in common. What the callbacks need, they own.
template <typename Options>
std::shared_ptr<ScoreMod> SetCommon(Tensors& tensors, const SdpaSizes& sizes, bool backward,
                                    Options* options) {
  SetScale(tensors, options);
  SetDropout(tensors, options);
  if (const Tensor bias = tensors.InputIf("bias")) options->set_bias(bias);
  const SdpaMask mask = MaskOf(tensors);
  CheckRagged(tensors, mask);
  if (mask.q_lengths != nullptr) {
    options->set_seq_len_q(mask.q_lengths).set_seq_len_kv(mask.kv_lengths);
  }
  const std::vector<int64_t> scores = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  const std::shared_ptr<ScoreMod> mod = ScoreMod::In(tensors.request(), tensors, scores, backward);
  if (mod != nullptr) {
    options->set_score_mod(
        [mod, mask, sizes](std::shared_ptr<fe::graph::Graph> graph, Tensor score) {
          return AddMasks(graph, mod->AddForward(*graph, score), mask, sizes);
        });
    return mod;
  }
  if (mask.q_lengths != nullptr) options->set_padding_mask(true);
  options->set_diagonal_alignment(mask.alignment());
  if (mask.causal != "none") options->set_diagonal_band_right_bound(0);
  if (mask.left) options->set_diagonal_band_left_bound(static_cast<int>(*mask.left));
  return mod;
}

inline void AddSdpa(const Request& request, Graph& graph) {
  graph.set_io_data_type(request.IoDtype({"bf16", "f16"}));
  Tensors tensors(request, graph);
  const SdpaSizes sizes = SizesOf(tensors);
  const bool with_stats = tensors.Has("stats");
  fe::graph::SDPA_attributes options;
  options.set_name("sdpa").set_generate_stats(with_stats);
  SetCommon(tensors, sizes, false, &options);
  const auto [o, stats] =
      graph.sdpa(tensors.Input("q"), tensors.Input("k"), tensors.Input("v"), options);
  tensors.Output(o, "o");
  if (with_stats) tensors.Output(stats, "stats", fe::DataType_t::FLOAT);
  CheckDims(tensors, sizes);
}

inline void AddSdpaFp8(const Request& request, Graph& graph) {
  graph.set_io_data_type(request.IoDtype({"e4m3", "e5m2"}));
  Tensors tensors(request, graph);
  const SdpaSizes sizes = SizesOf(tensors);
  const bool with_stats = tensors.Has("stats");
  fe::graph::SDPA_fp8_attributes options;
  options.set_name("sdpa_fp8").set_generate_stats(with_stats);
  SetCommon(tensors, sizes, false, &options);
  const auto factor = [&](const char* name) { return tensors.Input(name, fe::DataType_t::FLOAT); };
  const auto [o, stats, amax_s, amax_o] =
      graph.sdpa_fp8(tensors.Input("q"), tensors.Input("k"), tensors.Input("v"),
                     factor("descale_q"), factor("descale_k"), factor("descale_v"),
                     factor("descale_s"), factor("scale_s"), factor("scale_o"), options);
  tensors.Output(o, "o");
  tensors.Output(amax_s, "amax_s", fe::DataType_t::FLOAT);
  tensors.Output(amax_o, "amax_o", fe::DataType_t::FLOAT);
  if (with_stats) tensors.Output(stats, "stats", fe::DataType_t::FLOAT);
  CheckDims(tensors, sizes);
}

inline void AddSdpaBackward(const Request& request, Graph& graph) {
  graph.set_io_data_type(request.IoDtype({"bf16", "f16"}));
  Tensors tensors(request, graph);
  const SdpaSizes sizes = SizesOf(tensors);
  fe::graph::SDPA_backward_attributes options;
  options.set_name("sdpa_backward").set_deterministic_algorithm(request.Flag("deterministic"));
  if (const auto mod = SetCommon(tensors, sizes, true, &options)) {
    options.set_score_mod_bprop([mod](std::shared_ptr<fe::graph::Graph> graph_of, Tensor gradient) {
      return mod->AddBackward(*graph_of, gradient);
    });
  }
  if (request.Has("total_q")) options.set_max_total_seq_len_q(request.Integer("total_q", 1));
  if (request.Has("total_kv")) options.set_max_total_seq_len_kv(request.Integer("total_kv", 1));
  if (const Tensor dbias = tensors.InputIf("dbias")) options.set_dbias(dbias);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      tensors.Input("q"), tensors.Input("k"), tensors.Input("v"), tensors.Input("o"),
      tensors.Input("do"), tensors.Input("stats", fe::DataType_t::FLOAT), options);
  tensors.Output(dq, "dq");
  tensors.Output(dk, "dk");
  tensors.Output(dv, "dv");
  CheckDims(tensors, sizes);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PLANNER_SDPA_NODES_H_
