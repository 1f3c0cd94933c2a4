// write_seeds FOLDER: the bundles that fuzzing begins with, each with its index as a whole and in
// pages.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "builder/pack/index_bytes.h"
#include "support/files.h"
#include "support/open_to_plan.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: write_seeds FOLDER\n", stderr), 2;
  const auto in_pages = [](const kbundle::fb::IndexT& index, uint64_t* pages_size) {
    kbundle::builder::IndexBytes written = kbundle::builder::WriteIndexBytes(index);
    *pages_size = written.pages_size;
    return std::move(written.bytes);
  };
  std::vector<std::string> seeds = kbundle::testing::FuzzSeeds();
  for (std::string& bytes : kbundle::testing::FuzzSeeds(in_pages))
    seeds.push_back(std::move(bytes));
  for (size_t i = 0; i < seeds.size(); ++i) {
    kbundle::testing::WriteFile(std::string(argv[1]) + "/seed" + std::to_string(i), seeds[i]);
  }
}
