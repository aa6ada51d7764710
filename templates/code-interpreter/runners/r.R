# SPDX-License-Identifier: Apache-2.0
# One context of R: frames (src/sandbox/code/frame.h) on fds 3 and 4. What is printed goes to the descriptors 1 and 2, which `start` relays.
local({
  COUNT <- 6; READY <- 1; RESULT <- 4; ERROR <- 5; END <- 7
  from <- file("/proc/self/fd/3", "rb", raw = TRUE)
  to <- file("/proc/self/fd/4", "wb", raw = TRUE)
  u32 <- function(n) writeBin(as.integer(n), raw(), endian = "little")
  text <- function(s) {
    bytes <- charToRaw(enc2utf8(paste(s, collapse = "\n")))
    c(u32(length(bytes)), bytes)
  }
  frame <- function(kind, ...) {
    payload <- c(raw(), ...)
    suspendInterrupts({
      writeBin(c(u32(length(payload)), as.raw(kind), payload), to)
      flush(to)
    })
  }
  result <- function(is_main, type, value) {
    if (nchar(value, "bytes") > 7 * 1024^2)
      message(type, ": ", nchar(value, "bytes"), " bytes are too many for a result")
    else
      frame(RESULT, as.raw(is_main), u32(1), text(type), text(value))
  }
  fail <- function(name, e) {
    call <- conditionCall(e)
    ours <- is.null(call) || identical(call[[1]], quote(parse)) || identical(call, quote(eval(cells[[i]], globalenv())))
    where <- if (ours) "Error: " else paste0("Error in ", deparse(call, nlines = 1), ": ")
    frame(ERROR, text(name), text(conditionMessage(e)), text(paste0(where, conditionMessage(e))))
  }
  exactly <- function(n) {
    bytes <- readBin(from, "raw", n)
    if (length(bytes) < n) quit("no", 0, FALSE)
    bytes
  }
  request <- function() exactly(readBin(exactly(5)[1:4], "integer", 1, endian = "little"))

  pictures <- tempfile("pictures")
  options(device = function(...) {
    dir.create(pictures, FALSE)
    png(file.path(pictures, "%06d.png"), 960, 720, res = 120, type = "cairo")
  }, menu.graphics = FALSE)
  send_pictures <- function() {
    graphics.off()
    for (one in sort(list.files(pictures, full.names = TRUE))) {
      result(FALSE, "image/png", system2("base64", c("-w0", one), stdout = TRUE))
      unlink(one)
    }
  }

  count <- 0
  run <- function(code) {
    cells <- parse(text = code, keep.source = FALSE)
    for (i in seq_along(cells)) {
      value <- withVisible(eval(cells[[i]], globalenv()))
      if (value$visible)
        result(i == length(cells), "text/plain", paste(capture.output(print(value$value)), collapse = "\n"))
    }
  }
  frame(READY)
  repeat {
    payload <- NULL
    # One that came too late for the cell before is no matter of this one's.
    tryCatch(suspendInterrupts(payload <- request()), interrupt = function(i) NULL)
    at <- 8
    take <- function() {
      n <- readBin(payload[at + 1:4], "integer", 1, endian = "little")
      at <<- at + 4 + n
      s <- rawToChar(payload[seq_len(n) + at - n])
      Encoding(s) <- "UTF-8"
      s
    }
    code <- take()
    n <- readBin(payload[at + 1:4], "integer", 1, endian = "little")
    at <- at + 4
    before <- list()
    for (i in seq_len(n)) {
      name <- take()
      before[[name]] <- Sys.getenv(name, NA)
      do.call(Sys.setenv, structure(list(take()), names = name))
    }
    frame(COUNT, u32(count <- count + 1))
    tryCatch(withCallingHandlers(run(code), warning = function(w) {
      message("Warning message:\n", conditionMessage(w))
      tryInvokeRestart("muffleWarning")
    }), error = function(e) fail("ERROR", e),
      interrupt = function(i) fail("KeyboardInterrupt", simpleCondition("the cell was interrupted")))
    tryCatch(send_pictures(), error = function(e) fail("ERROR", e), interrupt = function(i) NULL)
    while (sink.number()) sink()
    for (name in names(before))
      if (is.na(before[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, before[name])
    frame(END, payload[1:8])
  }
})
