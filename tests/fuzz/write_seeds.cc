// write_seeds FOLDER: the bundles that fuzzing begins with.
#include <cstdio>

#include "support/files.h"
#include "support/open_to_plan.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: write_seeds FOLDER\n", stderr), 2;
  int number = 0;
  for (const std::string& bytes : kbundle::testing::FuzzSeeds()) {
    kbundle::testing::WriteFile(std::string(argv[1]) + "/seed" + std::to_string(number++), bytes);
  }
}
