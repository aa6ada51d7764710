# SPDX-License-Identifier: Apache-2.0
# One context of Bash: frames (src/sandbox/code/frame.h) on our side, an interactive bash without a terminal on the other, because that alone gives up a whole
# cell on SIGINT and lives on. It reads commands of ours from its stdin, the text of the cell from fd 10, and says on fd 11 that it is done.
use strict;
use warnings;
use POSIX ();
use Socket;

use constant {READY => 1, STDOUT_ => 2, STDERR_ => 3, ERROR => 5, COUNT => 6, END_ => 7};

my $count = 0;
my ($running, $interrupted, $in) = (undef, 0, '');

sub write_all {
    my ($fh, $bytes) = @_;
    my $at = 0;
    while ($at < length($bytes)) {
        my $n = syswrite($fh, $bytes, length($bytes) - $at, $at);
        if (defined $n) { $at += $n } elsif (!$!{EINTR}) { POSIX::_exit(1) }
    }
}

sub frame {
    my ($kind, $payload) = @_;
    write_all(\*STDOUT, pack('L<C', length($payload), $kind) . $payload);
}

$^F = 1000;
pipe(my $command_r, my $command) && pipe(my $text_r, my $text) && pipe(my $done, my $done_w) && pipe(my $out, my $out_w) && pipe(my $err, my $err_w) or die "pipe: $!\n";
my $pid = fork() // die "fork: $!\n";
if (!$pid) {
    setpgrp(0, 0);
    my @from = map { POSIX::dup(fileno($_)) } $command_r, $out_w, $err_w, $text_r, $done_w;
    my @to = (0, 1, 2, 10, 11);
    @from = map { my $fd = $_; while ($fd < 30) { $fd = POSIX::dup($fd) } $fd } @from;
    POSIX::dup2($from[$_], $to[$_]) for 0 .. 4;
    for my $fd (3 .. 9, 12 .. 200) { POSIX::close($fd) }
    $ENV{PS1} = $ENV{PS2} = '';
    exec('bash', '--noprofile', '--norc', '--noediting', '-i', '+H', '+m', '+o', 'history') or POSIX::_exit(127);
}
close($_) for $command_r, $text_r, $done_w, $out_w, $err_w;
$SIG{INT} = sub {
    return if !defined $running;
    kill 'INT', -$pid;
    # Not reached when the cell is given up: what follows is read then.
    $interrupted = 1;
};
$SIG{TERM} = sub { kill 'KILL', -$pid; POSIX::_exit(143) };

sub ask { write_all($command, "printf '%s\\0' '$_[0] '\$? >&11\n") }

sub finish {
    my ($fh, $kind, $data) = @_;
    # All that was written before it ended.
    for (1 .. 1000) {
        my $ready = '';
        vec($ready, fileno($_), 1) = 1 for grep { defined } $out, $err;
        last if select($ready, undef, undef, 0) < 1 || !relay($ready);
    }
}

sub relay {
    my ($ready) = @_;
    my $any = 0;
    for my $one ([\$out, STDOUT_], [\$err, STDERR_]) {
        my ($fh, $kind) = ($ {$one->[0]}, $one->[1]);
        next if !defined $fh || !vec($ready, fileno($fh), 1);
        my $n = sysread($fh, my $data, 32768);
        if ($n) {
            # A moment for what comes right behind it.
            for (1 .. 3) {
                my $more = '';
                vec($more, fileno($fh), 1) = 1;
                last if length($data) >= 32768 || select($more, undef, undef, 0.001) < 1 || !sysread($fh, $data, 32768, length($data));
            }
            frame($kind, pack('L<', length($data)) . $data) if defined $running;
            $any = 1;
        } elsif (defined $n) {
            $ {$one->[0]} = undef;
        }
    }
    return $any;
}

sub begin {
    my ($payload) = @_;
    my $id = substr($payload, 0, 8);
    my $at = 8;
    my $take = sub { my $n = unpack('L<', substr($payload, $at, 4)); $at += 4 + $n; substr($payload, $at - $n, $n) };
    my $code = $take->();
    my $n = unpack('L<', substr($payload, $at, 4));
    $at += 4;
    my ($set, $unset) = ('', '');
    my $quote = sub { my $s = shift; $s =~ s/'/'\\''/g; "'$s'" };
    while ($n--) {
        my ($name, $value) = ($take->(), $take->());
        next if $name !~ /^[A-Za-z_][A-Za-z0-9_]*$/;
        $set .= "__cove_had_$name=\${$name+1}; __cove_$name=\${$name-}; export $name=" . $quote->($value) . '; ';
        $unset .= "if [ -n \"\$__cove_had_$name\" ]; then export $name=\"\$__cove_$name\"; else unset $name; fi; unset __cove_$name __cove_had_$name; ";
    }
    $code =~ s/\0//g;
    $count++;
    ($running, $interrupted) = ($id, 0);
    frame(COUNT, pack('L<', $count));
    # 10 and 11 are not the cell's.
    write_all($command, "IFS= read -r -d '' -u 10 __cove_code; ${set}eval \"\$__cove_code\" </dev/null 10<&- 11>&-\n");
    ask($count);
    write_all($command, "$unset:\n") if $unset;
    write_all($text, "$code\0");
}

write_all($command, "printf '0 0\\0' >&11\n");
my ($done_in, $is_ready) = ('', 0);
while (1) {
    my $ready = '';
    vec($ready, fileno($_), 1) = 1 for grep { defined } $done, $out, $err;
    vec($ready, 0, 1) = 1 if !defined $running && $is_ready;
    my $n = select($ready, undef, undef, undef);
    next if $n < 1;
    relay($ready);
    if (vec($ready, fileno($done), 1)) {
        if (!sysread($done, $done_in, 4096, length($done_in))) { # bash has ended
            finish();
            waitpid($pid, 0);
            my $status = $?;
            if ($status & 127) {
                $SIG{TERM} = 'DEFAULT';
                kill $status & 127, $$;
            }
            POSIX::_exit($status >> 8);
        }
        while ($done_in =~ s/^(\d+) (\d+)\0//) {
            if (!$is_ready) {
                $is_ready = 1;
                frame(READY, '');
            } elsif (defined $running && $1 == $count) {
                finish();
                frame(ERROR, join '', map { pack('L<', length) . $_ } 'KeyboardInterrupt', 'the cell was interrupted', '') if $interrupted;
                frame(END_, $running);
                $running = undef;
            }
        }
    }
    if (vec($ready, 0, 1)) {
        if (!sysread(STDIN, $in, 65536, length($in))) {
            kill 'KILL', -$pid;
            POSIX::_exit(0);
        }
    }
    while (!defined $running && length($in) >= 5) {
        my $size = unpack('L<', $in);
        last if length($in) < 5 + $size;
        my $payload = substr($in, 5, $size);
        substr($in, 0, 5 + $size) = '';
        begin($payload);
    }
}
