/* SPDX-License-Identifier: Apache-2.0 */
/* The languages of /run_code. Which of them there are is the template's matter (templates/run-code): a program that
 * isn't in it is answered as such. */
#include "api/fusion/handlers.h"

#define CLASSES "-cp .:./*"
#define JUNIT "/opt/cove/run-code/junit/*"

static const struct fusion_language languages[] = {
    {"python", "main.py", NULL, "python3 main.py"},
    {"python_gpu", "main.py", "nvidia-smi", "python3 main.py"},
    {"pytest", "test_main.py", NULL, "pytest test_main.py"},
    {"cpp", "main.cpp", "g++ -std=c++17 main.cpp -o test -lcrypto -lssl -lpthread", "./test"},
    {"c", "main.c", "gcc -std=gnu17 main.c -o test -lm -lpthread", "./test"},
    {"cuda", "main.cu", "nvcc main.cu -o test", "./test"},
    {"nodejs", "main.js", NULL, "node main.js"},
    {"typescript", "main.ts", NULL, "node --experimental-transform-types --no-warnings main.ts"},
    {"jest", "main.test.ts", NULL, "jest --json --outputFile=jest-report.json"},
    {"go", "main.go", "go build -o out main.go", "./out"},
    {"go_test", "main_test.go", NULL, "go test main_test.go"},
    {"java", "Main.java", "javac " CLASSES " Main.java", "java " CLASSES " -ea Main"},
    {"junit", "", "javac -cp .:" JUNIT " *.java",
     "java -cp .:" JUNIT " org.junit.platform.console.ConsoleLauncher --disable-banner --scan-class-path ."},
    {"php", "main.php", NULL, "php -f main.php"},
    {"csharp", "main.cs", "mcs -out:main.exe main.cs", "mono main.exe"},
    {"bash", "main.sh", NULL, "bash main.sh"},
    {"sql", "main.sql", NULL, "sqlite3 -init main.sql :memory: .exit"},
    {"rust", "main.rs", "rustc main.rs -o test", "./test"},
    {"lua", "main.lua", NULL, "lua main.lua"},
    {"R", "main.R", NULL, "Rscript main.R"},
    {"perl", "main.pl", NULL, "perl main.pl"},
    {"D_ut", "main.d", "gdc -funittest main.d -o test", "./test"},
    {"ruby", "main.rb", NULL, "ruby main.rb"},
    {"scala", "main.scala", NULL, "scala -nc main.scala"},
    {"julia", "main.jl", NULL, "julia main.jl"},
    {"kotlin_script", "main.kts", NULL, "kotlinc -script main.kts"},
    {"verilog", "main.sv", "iverilog -Wall -g2012 -o test main.sv", "vvp -n test"},
    {"lean", "Main.lean", NULL, "lean Main.lean"},
    {"swift", "main.swift", "swiftc main.swift -o test.out", "./test.out"},
    {"racket", "main.rkt", NULL, "racket main.rkt"},
};

const struct fusion_language *fusion_language_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
        if (str_eqc(name, languages[i].name))
            return &languages[i];
    return NULL;
}
