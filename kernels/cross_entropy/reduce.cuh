// The losses of all rows become one: their sum, or their mean over the rows that are not ignored.
//
//   ReduceRows    a block has a part of the rows; if there are several parts, it writes what it has
//   ReduceParts   one block adds up the parts
//
// Who adds what, and in which order, follows from the number of rows alone: the same losses give
// the same bits. Rows that are ignored have a loss of 0. Of no rows that count, both are 0.
#pragma once

#include "loss.cuh"

namespace loss {

// What a launch is given.
struct Reduction {
  float* total;         // null: not wanted
  float* share;         // what a row's loss is multiplied by in the mean; null: not wanted
  float* parts;         // sums of every part, then numbers of rows; not looked at if there is one
  const float* losses;  // of every row; null: not to be looked at
  const void* labels;
  int ignore;
  bool wide;  // labels are int64
  bool mean;
  int64 rows;
};

// {sum of losses, rows that are not ignored}, by the first thread of the team.
__device__ __forceinline__ void Finish(const Reduction& reduction, const float (&all)[2]) {
  const float count = fmaxf(all[1], 1.0f);
  if (reduction.total != nullptr) *reduction.total = reduction.mean ? all[0] / count : all[0];
  if (reduction.share != nullptr) *reduction.share = 1.0f / count;
}

template <typename Team>
__device__ __forceinline__ void ReduceRows(const Reduction& reduction, Team team, int part,
                                           int parts) {
  const int64 each = (reduction.rows + parts - 1) / parts, begin = part * each;
  const int64 end = begin + each < reduction.rows ? begin + each : reduction.rows;
  double sum = 0;
  float count = 0;
  for (int64 row = begin + team.rank(); row < end; row += team.size()) {
    if (reduction.losses != nullptr) sum += static_cast<double>(reduction.losses[row]);
    if (!reduction.mean) continue;
    const int label = LabelAt(reduction.labels, reduction.wide, reduction.ignore, row);
    count += label != reduction.ignore ? 1.0f : 0.0f;
  }
  float all[2] = {static_cast<float>(sum), count};
  team.template All<Sum>(all);
  if (team.rank() != 0) return;
  if (parts == 1) return Finish(reduction, all);
  reduction.parts[part] = all[0];
  reduction.parts[parts + part] = all[1];
}

template <typename Team>
__device__ __forceinline__ void ReduceParts(const Reduction& reduction, Team team, int parts) {
  double sum = 0;
  float count = 0;
  for (int part = team.rank(); part < parts; part += team.size()) {
    sum += static_cast<double>(reduction.parts[part]);
    count += reduction.parts[parts + part];
  }
  float all[2] = {static_cast<float>(sum), count};
  team.template All<Sum>(all);
  if (team.rank() == 0) Finish(reduction, all);
}

}  // namespace loss
