// write_seeds FOLDER: the bundles that fuzzing begins with, each with its index as a whole and in
// pages.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/in_pages.h"
#include "support/open_to_plan.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: write_seeds FOLDER\n", stderr), 2;
  std::vector<std::string> seeds = kbundle::testing::FuzzSeeds();
  for (std::string& bytes : kbundle::testing::FuzzSeeds(kbundle::testing::InPages))
    seeds.push_back(std::move(bytes));
  for (size_t i = 0; i < seeds.size(); ++i) {
    kbundle::testing::WriteFile(std::string(argv[1]) + "/seed" + std::to_string(i), seeds[i]);
  }
}
